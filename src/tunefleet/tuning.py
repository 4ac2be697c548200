"""Many networks at once on this machine: what `tunefleet tune A B C` and a script both call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.context import BenchmarkContext
from tunefleet.core.events import JobEnded, Observer
from tunefleet.core.importing import ImportOptions
from tunefleet.errors import InputError, JobError, TunefleetError
from tunefleet.request import SearchRequest, search_request, shape_request
from tunefleet.scheduler.values import Role
from tunefleet.session import Session

if TYPE_CHECKING:
    from tunefleet.core.job import Job
    from tunefleet.fleet.live import Ending, Errands, Live
    from tunefleet.fleet.local import LocalFleet, Wanted


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
    wanted = search_request(**request)
    base = context or BenchmarkContext()
    fleet = LocalFleet(base.target, wanted.settings, base.layout, base.home)
    runs = [
        _Run(
            name,
            fleet,
            Session(base.another(), observer(index), fleet),
            observer(index),
            wanted,
            ImportOptions(shape_request(shapes, dims, constants), whole, trust),
            Wanted((priorities or {}).get(name, 0), (deadlines_s or {}).get(name), look_ahead),
        )
        for index, name in enumerate(names)
    ]
    try:
        shell = fleet.shell(policy)
        for run in runs:
            shell.submit(run.importing())
        shell.run()
    finally:
        for run in runs:
            run.session.release()
        fleet.close()
    outcomes = [run.outcome() for run in runs]
    for run in runs:
        run.session.close()
    return outcomes


class _Run:
    """One network on its way: import, search, delivery, each submitted when the one before ends."""

    def __init__(
        self,
        name: str,
        fleet: LocalFleet,
        session: Session,
        observer: Observer,
        request: SearchRequest,
        options: ImportOptions,
        wanted: Wanted,
    ) -> None:
        self.session = session
        self._fleet = fleet
        self._name = name
        self._observer = observer
        self._request = request
        self._options = options
        self._wanted = wanted
        self._job: Job | None = None
        self._result: dict[str, Any] | None = None
        self._error: Exception | None = None

    def importing(self) -> Errands:
        from tunefleet.fleet.live import Errands

        session = self.session
        steps = [
            (Role.HOST, self._import),
            (Role.DEVICE, session.check_import),
            (Role.HOST, self._open_job),
        ]
        return Errands(f"import of {self._name}", steps, self._searching)

    def _import(self) -> None:
        self.session.import_network(self._name, self._options)

    def _open_job(self) -> None:
        self._result = self.session.delivered_before(self._request)
        if self._result is None:
            self._job = self.session.open_job(self._request)

    def _searching(self, ending: Ending) -> Sequence[Live]:
        if self._result is not None:
            self._observer(JobEnded())
            return ()
        if ending.error is not None or self._job is None:
            return self._failed(ending)
        return [self._fleet.search(self._job, self._observer, self._wanted, self._delivering)]

    def _delivering(self, ending: Ending) -> Sequence[Live]:
        from tunefleet.fleet.live import Errands

        session = self.session
        steps = [
            (Role.HOST, lambda: session.build_finalists(ending)),
            (Role.DEVICE, session.crown),
            (Role.HOST, session.compile),
            (Role.DEVICE, session.verify),
            (Role.HOST, session.save),
            (Role.DEVICE, session.evaluate),
        ]
        assert self._job is not None
        name, obeys = f"delivery of {self._name}", self._job.job_id
        return [Errands(name, steps, self._ended, obeys, self._observer)]

    def _ended(self, ending: Ending) -> Sequence[Live]:
        from tunefleet.scheduler.values import JobEnd

        if ending.end is JobEnd.CANCELLED and ending.error is None:
            assert self._job is not None
            self._fleet.cancelled(self._job, ending.reason)
        if ending.end is not JobEnd.DONE:
            return self._failed(ending)
        self._result = self.session.result()
        self._observer(JobEnded())
        return ()

    def _failed(self, ending: Ending) -> Sequence[Live]:
        self._error = ending.error or JobError(f"{self._name}: {ending.reason}", cure="try again")
        self._observer(JobEnded(str(self._error)))
        return ()

    def outcome(self) -> Tuned:
        """Raises what is no error of the tree, since that is a bug."""
        if self._error is not None and not isinstance(self._error, TunefleetError):
            raise self._error
        return Tuned(self._name, self._result, self._error)
