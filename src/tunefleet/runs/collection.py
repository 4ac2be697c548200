"""Collecting records: programs of many networks' tasks, measured on several targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from tunefleet.core.budget import Budget
from tunefleet.core.events import JobEnded, Observer, ended_by
from tunefleet.core.importing import DEFAULT_IMPORT
from tunefleet.core.job import Collecting, Job, JobSpec, JobState
from tunefleet.core.settings import MeasureSettings, SearchSettings, TuneSettings
from tunefleet.errors import InputError, InternalError, TunefleetError
from tunefleet.runs.context import BenchmarkContext, fleet_of
from tunefleet.runs.driver import Pipeline
from tunefleet.runs.request import SearchRequest, source_of

if TYPE_CHECKING:
    from tunefleet.core.target import Target
    from tunefleet.core.task import WeightedTask
    from tunefleet.fleet.live import Live
    from tunefleet.store import Store

#: Half of a round is random: a model must also learn what is slow, and what nobody would select. No
#: pretrained model steers it, or the next one would learn what this one believes.
#: Less effort goes into selecting than where the fastest program is searched.
SETTINGS = TuneSettings(
    search=SearchSettings(
        batch=16, first_batch=16, population=128, generations=2, random_share=0.5, pretrained=""
    ),
    measure=MeasureSettings(repeats=8, budget_s=0.04),
    transfer=False,
)
#: Networks under way at once: while one is measured the next is imported.
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Gathered:
    """What became of one network on one target. `tasks` are those that no network before it had;
    `skipped`: an earlier call had collected it."""

    network: str
    target: str
    tasks: int = 0
    trials: int = 0
    skipped: bool = False
    error: str = ""
    job_id: str = ""


def _unwatched(index: int) -> Observer:
    return lambda event: None


def collect(
    networks: Sequence[str],
    contexts: Sequence[BenchmarkContext],
    programs_per_task: int,
    *,
    tensorised: bool = False,
    settings: TuneSettings = SETTINGS,
    observer: Callable[[int], Observer] = _unwatched,
) -> list[Gathered]:
    """Measure programs of the networks' tasks on the target of each context, one after the other.

    A task that several networks share is collected once per target. All goes into the store of
    the contexts' home. Called again after an interruption it goes on where it was; what is
    complete is not imported again. An error of one network does not end the others.
    `observer(i)` is told of the i-th network of all targets, in their order: `len(networks)`
    times the position of the context, plus that of the network.

    With `tensorised` tasks are left out that have no programs by tensor instructions.

    Raises InputError for networks given twice, for less than one program and for targets that have
    no tensor instructions.
    """
    doubles = sorted({name for name in networks if networks.count(name) > 1})
    if doubles:
        raise InputError(f"{doubles[0]} is given twice", cure="name each network once")
    if programs_per_task < 1:
        raise InputError(f"{programs_per_task} programs per task", cure="ask for one or more")
    gathered: list[Gathered] = []
    for number, context in enumerate(contexts):
        first = number * len(networks)
        target = _Target(context, settings, programs_per_task, tensorised)
        gathered += target.collect(networks, [observer(first + i) for i in range(len(networks))])
    return gathered


def _check_intrinsics(target: Target) -> None:
    from tunefleet.compiler.space.intrinsics import has_intrinsics

    if not has_intrinsics(target):
        raise InputError(
            f"target '{target}' has no tensor instructions that are known",
            cure="leave out --tensorised, or name another target",
        )


class _Target:
    """The collection on one target: networks follow each other through one shell."""

    def __init__(
        self, context: BenchmarkContext, settings: TuneSettings, per_task: int, tensorised: bool
    ) -> None:
        self.context = context
        budget = Budget(trials=per_task)  # of each task
        self.request = SearchRequest(budget, settings, collecting=Collecting(tensorised))
        self.target = context.target
        if tensorised:
            _check_intrinsics(self.target)
        self.tensorised = tensorised
        self.fleet = fleet_of(context)
        #: Tasks that a network before has.
        self.seen: set[str] = set()

    def collect(self, names: Sequence[str], observers: Sequence[Observer]) -> list[Gathered]:
        networks = [_Network(self, n, o) for n, o in zip(names, observers, strict=True)]
        try:
            self.fleet.check()
            waiting = (live for network in networks for live in network.begin())
            # Jobs that another process has are refused here, before any worker starts.
            first = next(waiting, None)
            if first is not None:
                self.fleet.shell().run(chain([first], waiting), _AT_ONCE)
            return [network.gathered() for network in networks]
        finally:
            for network in networks:
                network.close()
            self.fleet.close()

    @property
    def store(self) -> Store:
        return self.fleet.store

    def own(self, tasks: Sequence[WeightedTask]) -> list[WeightedTask]:
        """Those that are wanted and that no network before has."""
        own = [w for w in tasks if w.task.task_id not in self.seen]
        if self.tensorised:
            from tunefleet.compiler.space.opening import has_tensorised

            own = [w for w in own if has_tensorised(w.task.program, self.target)]
        self.seen.update(w.task.task_id for w in own)
        return own

    def known(self, spec: JobSpec) -> Job | None:
        """The job of an earlier call that was not given up."""
        newest = self.store.jobs.page(fingerprint=spec.fingerprint, limit=1)
        goes_on = (JobState.RUNNING, JobState.SUCCEEDED)
        return next((job for job in newest if job.state in goes_on), None)


class _Network:
    """One of the networks: import, and trials of the tasks that are its own."""

    def __init__(self, target: _Target, name: str, observer: Observer) -> None:
        self._target = target
        self._name = name
        self._observer = observer
        self._pipeline: Pipeline | None = None
        self._job_id, self._skipped = "", False
        self._error: Exception | None = None

    def begin(self) -> Sequence[Live]:
        """What is to be submitted; nothing for what is complete or cannot be."""
        target = self._target
        context = target.context.another()
        try:
            source = source_of(self._name, DEFAULT_IMPORT, context)
            self._pipeline = Pipeline(target.fleet, context, source, self._observer, target.own)
            spec = self._pipeline.spec(target.request)
            self._pipeline.lock(spec)
        except TunefleetError as error:
            self._error = error
            return self._ended()
        job = target.known(spec)
        if job is not None:
            target.seen.update(w.task.task_id for w in target.store.work.tasks(job.job_id))
        if job is not None and job.state is JobState.SUCCEEDED:
            self._job_id, self._skipped = job.job_id, True
            return self._ended()
        self._job_id = self._pipeline.open_job(target.request).job_id
        return self._pipeline.advance()

    def _ended(self) -> Sequence[Live]:
        self._observer(JobEnded() if self._error is None else ended_by(self._error))
        return ()

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()

    def gathered(self) -> Gathered:
        """What became of it. Raises what is a bug of ours, or no error of the tree."""
        target, pipeline = self._target, self._pipeline
        gathered = Gathered(self._name, str(target.target), skipped=self._skipped)
        error = self._error or (pipeline.error if pipeline is not None else None)
        if error is not None:
            if isinstance(error, InternalError) or not isinstance(error, TunefleetError):
                raise error
            return replace(gathered, error=str(error))
        tasks = len(target.store.work.tasks(self._job_id))
        trials = target.store.records.trial_count(self._job_id)
        return replace(gathered, tasks=tasks, trials=trials, job_id=self._job_id)
