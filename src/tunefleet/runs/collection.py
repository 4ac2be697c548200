"""Collecting records: programs of many networks' tasks, measured on several targets."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tunefleet.core.budget import Budget
from tunefleet.core.events import JobEnded, JobOpened, Note, Observer
from tunefleet.core.home import Home
from tunefleet.core.ids import digest
from tunefleet.core.importing import DEFAULT_IMPORT
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.settings import MeasureSettings, SearchSettings, TuneSettings
from tunefleet.core.step import SplitTasks, StepKey, StepKind
from tunefleet.errors import InputError, InternalError, JobError, TunefleetError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.driver import fleet_of, source_of
from tunefleet.runs.request import job_spec
from tunefleet.scheduler.values import JobEnd, JobRequest

if TYPE_CHECKING:
    from tunefleet.core.target import Target
    from tunefleet.core.task import WeightedTask
    from tunefleet.fleet.live import Ending, Live
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
        self.settings = settings
        self.per_task = per_task
        self.tensorised = tensorised
        self.target = context.target
        if tensorised:
            _check_intrinsics(self.target)
        self.fleet = fleet_of(context, settings)
        self.locks = ExitStack()
        #: Tasks that a network before has.
        self.seen: set[str] = set()
        self._waiting: deque[_Network] = deque()
        self._jobs: dict[str, Job] = {}

    def collect(self, names: Sequence[str], observers: Sequence[Observer]) -> list[Gathered]:
        networks = [_Network(self, n, o) for n, o in zip(names, observers, strict=True)]
        try:
            # The newest job of each kind is the one that counts.
            for job in reversed(self.store.jobs()):
                self._jobs[job.spec.fingerprint] = job
            self._waiting.extend(networks)
            self.fleet.check()
            # Jobs that another process has are refused here, before any worker starts.
            lives = [live for _ in range(_AT_ONCE) for live in self.next()]
            if lives:
                shell = self.fleet.shell()
                for live in lives:
                    shell.submit(live)
                shell.run()
        finally:
            self.locks.close()
            self.fleet.close()
        return [network.gathered for network in networks]

    @property
    def store(self) -> Store:
        return self.fleet.store

    def next(self) -> Sequence[Live]:
        """The next network that needs anything done."""
        while self._waiting:
            live = self._waiting.popleft().begin()
            if live:
                return live
        return ()

    def spec(self, name: str) -> JobSpec:
        """A collection is another job than tuning the same network, whatever its settings."""
        source = source_of(name, DEFAULT_IMPORT, self.context)
        budget = Budget(trials=self.per_task)  # of each task
        spec = job_spec(self.context, source, budget, self.settings)
        what = ["collection", source.content, self.per_task, *["tensorised"] * self.tensorised]
        collected = digest(what)
        return replace(spec, network=replace(spec.network, digest=collected))

    def own(self, split: SplitTasks) -> list[WeightedTask]:
        """The tasks of a network that are wanted and that no network before it has."""
        own = [w for w in split.tasks if w.task.task_id not in self.seen]
        if self.tensorised:
            from tunefleet.compiler.space.opening import has_tensorised

            own = [w for w in own if has_tensorised(w.task.program, self.target)]
        self.seen.update(w.task.task_id for w in own)
        return own

    def known(self, spec: JobSpec) -> Job | None:
        """The job of an earlier call that was not given up."""
        job = self._jobs.get(spec.fingerprint)
        return job if job and job.state in (JobState.RUNNING, JobState.SUCCEEDED) else None

    def lock(self, spec: JobSpec) -> None:
        from tunefleet.fleet.locks import job_lock

        directory = self.context.created(Home(self.context.home).locks)
        self.locks.enter_context(job_lock(directory, spec.fingerprint))


class _Network:
    """One network on its way: import, and trials of the tasks that are its own."""

    def __init__(self, target: _Target, name: str, observer: Observer) -> None:
        self.gathered = Gathered(name, str(target.target))
        self._target = target
        self._name = name
        self._observer = observer
        self._job: Job | None = None

    def begin(self) -> Sequence[Live]:
        """What is to be submitted; nothing for what is complete or cannot be."""
        target = self._target
        try:
            spec = target.spec(self._name)
            target.lock(spec)
        except TunefleetError as error:
            return self._failed(error)
        job = target.known(spec)
        tasks = target.store.tasks(job.job_id) if job is not None else []
        if job is None or (job.state is JobState.RUNNING and not tasks):
            return self._splitting(spec)
        target.seen.update(w.task.task_id for w in tasks)
        if job.state is JobState.RUNNING:
            return self._collecting(job, resumed=True)
        trials = target.store.trial_count(job.job_id)
        self.gathered = replace(
            self.gathered, tasks=len(tasks), trials=trials, skipped=True, job_id=job.job_id
        )
        self._observer(JobEnded())
        return ()

    def _splitting(self, spec: JobSpec) -> Sequence[Live]:
        """Import the network and enter the tasks that no network before it has."""
        from tunefleet.fleet.live import Ending, Steps
        from tunefleet.stages.place import Delivery, StepRequest

        target = self._target
        job = target.store.open_job(spec, job_id=uuid.uuid4().hex, now=time.time())
        self._job = job
        delivery = Delivery(job.job_id, spec.preparation, target.settings, job)
        request = StepRequest(StepKind.SPLIT, spec.preparation, delivery, job.job_id)
        committed = target.store.step(request.key)
        done = {} if committed is None else {StepKind.SPLIT: committed}
        steps = Steps(job.job_id, [request], done, self._observer, self._split, job.job_id)
        return self._split(Ending(JobEnd.DONE, "")) if steps.over else [steps]

    def _split(self, ending: Ending) -> Sequence[Live]:
        target, job = self._target, self._job
        assert job is not None
        if ending.end is not JobEnd.DONE:
            error = ending.error or JobError(ending.reason, cure="collect it again")
            state = JobState.CANCELLED if ending.end is JobEnd.CANCELLED else JobState.FAILED
            target.store.finish(job.job_id, state, {"stopped": str(error)})
            return [*self._failed(error), *target.next()]
        run = target.store.step(StepKey(job.job_id, StepKind.SPLIT))
        assert run is not None
        assert isinstance(run.result, SplitTasks)
        target.store.put_tasks(job.job_id, target.own(run.result))
        return self._collecting(job, resumed=False) or target.next()

    def _collecting(self, job: Job, *, resumed: bool) -> Sequence[Live]:
        from tunefleet.fleet.live import Search
        from tunefleet.fleet.shell import now
        from tunefleet.scheduler.collection_plan import CollectionPlan

        target = self._target
        self._job = job
        tasks = target.store.tasks(job.job_id)
        if not tasks:
            self._done(tasks, "its tasks are those of other networks, or not wanted")
            return ()
        plan = CollectionPlan(
            tasks,
            target.settings.search,
            target.per_task,
            committed=target.store.stages(job.job_id),
            elapsed_s=job.elapsed_s,
            now=now(),
        )
        budget = Budget(trials=target.per_task * len(tasks))
        self._observer(JobOpened(job.job_id, resumed, budget, job.elapsed_s))
        by_id = {w.task.task_id: w.task for w in tasks}
        request = JobRequest(job.job_id, plan)
        return [Search(job, plan, by_id, self._observer, request, self._collected)]

    def _collected(self, ending: Ending) -> Sequence[Live]:
        from tunefleet.fleet.controls import ControlRequest

        assert self._job is not None
        if ending.end is not JobEnd.DONE:
            error = ending.error or JobError(ending.reason, cure="collect it again")
            state = JobState.CANCELLED if ending.end is JobEnd.CANCELLED else JobState.FAILED
            self._target.store.finish(self._job.job_id, state, {"stopped": ending.reason})
            self._target.fleet.controls.ask(self._job.job_id, ControlRequest.RUN)
            return [*self._failed(error), *self._target.next()]
        self._done(self._target.store.tasks(self._job.job_id), ending.reason)
        return self._target.next()

    def _done(self, tasks: Sequence[WeightedTask], reason: str) -> None:
        assert self._job is not None
        job_id = self._job.job_id
        trials = self._target.store.trial_count(job_id)
        self.gathered = replace(self.gathered, tasks=len(tasks), trials=trials, job_id=job_id)
        self._target.store.finish(job_id, JobState.SUCCEEDED, {"stopped": reason, "trials": trials})
        self._observer(JobEnded())

    def _failed(self, error: Exception) -> Sequence[Live]:
        """Raises what is a bug of ours, or no error of the tree."""
        if isinstance(error, InternalError) or not isinstance(error, TunefleetError):
            raise error
        self.gathered = replace(self.gathered, error=str(error))
        self._observer(Note(f"not collected: {error}", warning=True))
        self._observer(JobEnded(str(error)))
        return ()
