"""Many networks at once on this machine: what `tunefleet tune A B C` and a script both call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.events import JobEnded, Note, Observer, Prepared
from tunefleet.core.importing import ImportOptions
from tunefleet.core.job import JobState
from tunefleet.errors import InputError, JobError, TunefleetError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.driver import Course, source_of
from tunefleet.runs.request import SearchRequest, search_request, shape_request
from tunefleet.scheduler.values import JobEnd

if TYPE_CHECKING:
    from tunefleet.fleet.live import Ending, Live
    from tunefleet.fleet.local import LocalFleet, Wanted
    from tunefleet.store import Store


@dataclass(frozen=True, slots=True)
class Tuned:
    """What became of one network: its result (`Session.result`), or the error that ended it."""

    network: str
    result: dict[str, Any] | None = None
    error: TunefleetError | None = None


def _unwatched(index: int) -> Observer:
    return lambda event: None


def tune(
    networks: Sequence[str | Path],
    *,
    context: BenchmarkContext | None = None,
    policy: str = "predictive",
    look_ahead: bool | None = None,
    priorities: Mapping[str, int] | None = None,
    deadlines_s: Mapping[str, float] | None = None,
    observer: Callable[[int], Observer] = _unwatched,
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, float | Sequence[float]] | None = None,
    whole: bool = False,
    trust: bool = False,
    **request: Any,
) -> list[Tuned]:
    """Tune networks at once under a policy: sequential, synchronous, interleaved, predictive.

    Returns their outcomes in the order of `networks`; an error of one does not end the others.
    Each is a job of its own with the budget and settings of `search_request` (`trials`,
    `minutes`, ...) and a run of its own in the home of `context`. `priorities` and `deadlines_s`
    are by network, higher goes first and seconds from now; only the predictive policy minds them.
    `shapes`, `dims` and `constants` fix what all of them leave free, `whole` and `trust` are as in
    `Session.from_network`. `observer(i)` is told what happens to the i-th network. Called again
    after an interruption, all jobs go on.
    """
    from tunefleet.fleet.local import LocalFleet, Wanted

    names = [str(network) for network in networks]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise InputError(f"{doubles[0]} is given twice", cure="name each network once")
    asked = search_request(**request)
    options = ImportOptions(shape_request(shapes, dims, constants), whole, trust)
    base = context or BenchmarkContext()
    started = time.time()
    fleet = LocalFleet(base.target, asked.settings, base.layout, base.home)
    runs = []
    for index, name in enumerate(names):
        wanted = Wanted((priorities or {}).get(name, 0), (deadlines_s or {}).get(name), look_ahead)
        run_context = base.another(started) if len(names) > 1 else base
        runs.append(_Run(name, fleet, run_context, observer(index), asked, options, wanted))
    try:
        # Before any job of this command is opened, which would look like one of those before.
        interrupted = _interrupted_commands(fleet.store)
        for run in runs:
            run.look_up(interrupted)
        shell = fleet.shell(policy)
        for run in runs:
            for live in run.begin():
                shell.submit(live)
        shell.run()
    finally:
        for run in runs:
            run.close()
        fleet.close()
    return [run.outcome() for run in runs]


def _interrupted_commands(store: Store) -> frozenset[float]:
    """When commands were given of which a job did not end: all jobs of one have one beginning."""
    return frozenset(job.created_at for job in store.jobs() if job.state is JobState.RUNNING)


class _Run:
    """One network on its way: each part is submitted when the one before has ended."""

    def __init__(
        self,
        name: str,
        fleet: LocalFleet,
        context: BenchmarkContext,
        observer: Observer,
        request: SearchRequest,
        options: ImportOptions,
        wanted: Wanted,
    ) -> None:
        self._name = name
        self._fleet = fleet
        self._context = context
        self._observer = observer
        self._request = request
        self._options = options
        self._wanted = wanted
        self._course: Course | None = None
        self._result: dict[str, Any] | None = None
        self._error: Exception | None = None

    def look_up(self, interrupted: frozenset[float]) -> None:
        """Find the network, and what an interrupted command for several networks delivered of it:
        the others of that command go on, this one is done."""
        try:
            source = source_of(self._name, self._options)
            self._course = Course(self._fleet, self._context, source, self._observer)
            fingerprint = self._course.spec(self._request).fingerprint
        except TunefleetError as error:
            self._fail(error)
            return
        if self._request.new_job:
            return
        for job in self._fleet.store.jobs():
            alike = job.state is JobState.DONE and job.spec.fingerprint == fingerprint
            if alike and job.created_at in interrupted:
                result = self._fleet.store.summary(job.job_id)
                artifact = result["artifact"]
                self._result = result if artifact and Path(artifact).is_dir() else None
                return

    def begin(self) -> Sequence[Live]:
        course = self._course
        if self._error is not None or course is None:
            return ()
        if self._result is not None:
            self._observer(Note("delivered before the interruption"))
            self._observer(JobEnded())
            return ()
        try:
            course.open_job(self._request)
            return course.preparing(self._prepared)
        except TunefleetError as error:
            return self._fail(error)

    def _prepared(self, ending: Ending) -> Sequence[Live]:
        course = self._course
        assert course is not None
        if ending.end is not JobEnd.DONE:
            if ending.end is not JobEnd.CANCELLED:
                course.unprepared(str(ending.error or ending.reason))
            return self._ended_before(ending)
        self._observer(Prepared(course.checked.peak_gflops))
        return course.searching(self._wanted, self._searched)

    def _searched(self, ending: Ending) -> Sequence[Live]:
        assert self._course is not None
        if ending.end is not JobEnd.DONE:
            return self._ended_before(ending)
        return self._course.delivering(self._delivered)

    def _delivered(self, ending: Ending) -> Sequence[Live]:
        assert self._course is not None
        if ending.end is not JobEnd.DONE:
            return self._ended_before(ending)
        self._result = self._course.told()
        self._observer(JobEnded())
        return ()

    def _ended_before(self, ending: Ending) -> Sequence[Live]:
        assert self._course is not None
        if ending.end is JobEnd.CANCELLED and ending.error is None:
            self._course.cancelled(ending.reason)
        return self._fail(
            ending.error or JobError(f"{self._name}: {ending.reason}", cure="tune it again")
        )

    def _fail(self, error: Exception) -> Sequence[Live]:
        self._error = error
        self._observer(JobEnded(str(error)))
        return ()

    def close(self) -> None:
        if self._course is not None:
            self._course.close()

    def outcome(self) -> Tuned:
        """Raises what is no error of the tree, since that is a bug."""
        if self._error is not None and not isinstance(self._error, TunefleetError):
            raise self._error
        return Tuned(self._name, self._result, self._error)
