"""The one driver of jobs: takes one through its plan, from its preparation to its delivery."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tunefleet.core.budget import Budget
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import JobEnded, JobOpened, Note, Observer, Prepared
from tunefleet.core.home import Home
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import Job, JobKind, JobSpec, JobState
from tunefleet.core.known import KnownPrograms, module_id
from tunefleet.core.phases import Forecast, least_budget
from tunefleet.core.result import RunResult
from tunefleet.core.settings import TuneSettings
from tunefleet.core.step import (
    PREPARATION,
    Checked,
    Imported,
    Preparation,
    SplitTasks,
    StepKey,
    StepKind,
    StepResult,
    StepRun,
)
from tunefleet.core.task import WeightedTask
from tunefleet.errors import JobError, StepOrderError, TunefleetError
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.forecast import forecast_of
from tunefleet.runs.on_the_way import sweep_objects
from tunefleet.runs.request import SearchRequest, job_spec
from tunefleet.scheduler.job_plan import (
    PLANS,
    CloseJob,
    JobPlan,
    Progress,
    SearchTasks,
    TakeSteps,
)
from tunefleet.scheduler.values import JobEnd

if TYPE_CHECKING:
    from tunefleet.fleet.live import Ending, Live
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.stages.place import Delivery, StepRequest

R = TypeVar("R", bound=StepResult)


def preparation_of(context: BenchmarkContext, source: NetworkSource) -> Preparation:
    """What its import and check are found by, on the target and the device of a context."""
    from tunefleet.compiler.toolchain.host import toolchain_of

    return Preparation(source, context.target, context.device, toolchain_of(context.target))


def fleet_of(context: BenchmarkContext, settings: TuneSettings) -> LocalFleet:
    """What runs the stages and steps of a context's networks."""
    from tunefleet.workers.pool import start_server

    start_server()  # both processes need seconds to load the compiler
    from tunefleet.fleet.local import LocalFleet

    layout, devices = context.layout, context.devices
    return LocalFleet(layout, context.home, devices)


class Course:
    """One network on its way, by the plan of its job; without a job it is built of what earlier
    ones found.

    `advance` gives what is to be submitted to a shell, which `ended` follows up to the goal.
    `close` releases its locks; what lies on its way is removed unless its job goes on.
    """

    def __init__(
        self,
        fleet: LocalFleet,
        context: BenchmarkContext,
        source: NetworkSource,
        observer: Observer,
        own: Callable[[Sequence[WeightedTask]], Sequence[WeightedTask]] = tuple,
    ) -> None:
        """`own`: which of its tasks are searched."""
        self.preparation = preparation_of(context, source)
        self.job: Job | None = None
        #: What ended it before its goal.
        self.error: Exception | None = None
        #: What it brought, where it was followed to its end.
        self.outcome: RunResult | None = None
        self._fleet = fleet
        self._context = context
        self._observer = observer
        self._own = own
        self._programs: KnownPrograms | None = None
        self._settings = TuneSettings()
        self._resumed = False
        self._searched = False
        self._stopped = ""
        self._forecast = Forecast()
        self._upto: StepKind | None = None
        self._without: frozenset[StepKind] = frozenset()
        self._again: frozenset[StepKind] = frozenset()
        self._rounds: int | None = None
        self._told: set[StepKey] = set()
        self._held, self._locked = ExitStack(), ExitStack()
        self._used: set[str] = set()
        self._use(self.preparation.id)

    @property
    def run_id(self) -> str:
        """Names the artifact: the job's id, where there is one."""
        return self._context.run_id

    @property
    def name(self) -> str:
        return self.preparation.source.name

    @property
    def plan(self) -> JobPlan:
        return PLANS[JobKind.BUILD if self.job is None else self.job.spec.kind]

    def close(self) -> None:
        """Release the locks, and remove what lies on the way of networks that are not on it."""
        self._locked.close()
        self._held.close()
        with suppress(TunefleetError):  # whoever met it before has told it
            sweep_objects(self._fleet.store, Home(self._context.home))

    # Its job

    def spec(self, request: SearchRequest) -> JobSpec:
        return job_spec(self._context, self.preparation.source, request)

    def lock(self, spec: JobSpec) -> None:
        """Nobody else works on such a job until another one is opened, or `close`."""
        self._locked.close()
        self._locked.enter_context(self._fleet.leases.job(spec.fingerprint))

    def open_job(self, request: SearchRequest) -> Job:
        """Enter the job of this network into the store, or find it there, and lock it until
        another one is opened or `close`."""
        store, spec = self._fleet.store, self.spec(request)
        self.lock(spec)
        if self.job is not None:  # whose id is the run's
            self._context.renew()
        if request.new_job:
            for old in store.jobs():
                if old.state is JobState.RUNNING and old.spec.fingerprint == spec.fingerprint:
                    store.finish(old.job_id, JobState.FAILED, {"stopped": "replaced by a new job"})
        job = store.open_job(spec, job_id=self.run_id, now=self._context.created_at)
        self._resumed = job.job_id != self.run_id
        # A job has one artifact, also where a process before published it and was killed then.
        self._context.run_id = job.job_id
        self._settings, self.job = request.settings, job
        self._searched, self._stopped = False, ""
        self._use(job.job_id)
        self._forecast = forecast_of(store, spec)
        if spec.kind is JobKind.TUNE:
            self._opened(job, spec.budget)
        return job

    def _opened(self, job: Job, budget: Budget) -> None:
        event = JobOpened(job.job_id, self._resumed, budget, job.elapsed_s, self._forecast)
        self._observer(event)

    def finish(self, summary: object) -> None:
        """The job is done, and its user knows: the same request is a job of its own from now on."""
        if self.job is not None:
            self._fleet.store.finish(self.job.job_id, JobState.SUCCEEDED, summary)

    def deliver(self, programs: KnownPrograms) -> None:
        """These programs are delivered, without a search; the run is named by what it makes."""
        self._programs = programs
        self._context.run_id = module_id(self.preparation, programs)

    # Its way

    def advance(
        self,
        upto: StepKind | None = None,
        *,
        without: frozenset[StepKind] = frozenset(),
        again: frozenset[StepKind] = frozenset(),
        rounds: int | None = None,
    ) -> Sequence[Live]:
        """What is to be submitted next on the way to the end, or to the step `upto`; nothing where
        that is done.

        Steps of `without` are left out, those of `again` are done once more; `rounds` of measuring
        end to end, None for those of the settings.
        """
        self._upto, self._without, self._again, self._rounds = upto, without, again, rounds
        self.error = None
        return self._next()

    def ended(self, ending: Ending) -> Sequence[Live]:
        """A part that was submitted has ended: what follows it."""
        self._again = frozenset()
        if ending.end is JobEnd.DONE:
            return self._next()
        reason = str(ending.error or ending.reason)
        end = JobEnd.FAILED if ending.error is not None else ending.end
        state = self.plan.closed_by(end, self._progress())
        if state is not None:
            self._close_job(state, reason)
        again = f"{JobKind.TUNE if self.job is None else self.job.spec.kind} it again"
        return self._fail(ending.error or JobError(f"{self.name}: {reason}", cure=again))

    def _next(self) -> Sequence[Live]:
        progress = self._progress()
        self._remark(progress)
        match self.plan.following(progress, self._upto, self._without):
            case TakeSteps(kinds):
                return [self._steps(kinds)]
            case SearchTasks():
                return [self._search()]
            case CloseJob(JobState.SUCCEEDED):
                self._complete()
            case CloseJob(state, reason):
                self._close_job(state, reason)
                return self._fail(
                    JobError(f"{self.name}: {reason}", cure="give it a later deadline")
                )
        return ()

    def _complete(self) -> None:
        if self._upto is not None:
            return
        if self.job is not None and self.job.spec.kind is JobKind.COLLECT:
            trials = self._fleet.store.trial_count(self.job.job_id)
            self.finish({"stopped": self._stopped, "trials": trials})
        else:
            self.outcome = self.told()
        self._observer(JobEnded())

    def _fail(self, error: Exception) -> Sequence[Live]:
        self.error = error
        if self._upto is None:
            self._observer(JobEnded(str(error) or type(error).__name__))
        return ()

    def _close_job(self, state: JobState, reason: str) -> None:
        """Its records stay."""
        if self.job is not None:
            self._fleet.store.finish(self.job.job_id, state, {"stopped": reason})
            self._fleet.store.coordination.ask(self.job.job_id, ControlRequest.RUN)

    def _progress(self) -> Progress:
        store, job = self._fleet.store, self.job
        committed = {key.kind for key, run in self._committed().items() if self._has_output(run)}
        deadline = None if job is None else job.spec.terms.deadline
        return Progress(
            frozenset(committed - self._again),
            self._searched,
            0 if job is None else store.trial_count(job.job_id),
            deadline is not None and time.time() >= deadline,
        )

    def _committed(self) -> dict[StepKey, StepRun]:
        kinds = (*self.plan.before, *self.plan.after)
        runs = [self._fleet.store.step(self._request(kind).key) for kind in kinds]
        return {run.key: run for run in runs if run is not None}

    def _steps(self, kinds: Sequence[StepKind]) -> Live:
        from tunefleet.fleet.live import Steps

        requests = [self._request(kind) for kind in kinds]
        for request in requests:  # without a job, the run is an owner too
            self._use(request.key.owner)
        committed = self._committed()
        done = {request.kind: committed[request.key] for request in requests
                if request.key in committed}  # fmt: skip
        lost = {kind for kind, run in done.items() if not self._has_output(run)}
        obeys = self.job.job_id if self.job is not None else ""
        again = self._again | lost
        told = self._told
        return Steps(self.run_id, requests, done, self._observer, self.ended, obeys, again, told)

    def _request(self, kind: StepKind) -> StepRequest:
        from tunefleet.stages.place import StepRequest

        delivery = None if kind in PREPARATION else self._delivery()
        return StepRequest(kind, self.preparation, delivery, self.run_id)

    def _remark(self, progress: Progress) -> None:
        """What the user should know of steps that are not repeated, once."""
        for key, run in self._committed().items():
            if key.kind in progress.done and key not in self._told:
                self._told.add(key)
                for remark in run.remarks:
                    self._observer(Note(remark.text, remark.warning))

    def _search(self) -> Live:
        """The trials of the job's tasks."""
        from tunefleet.fleet.live import search_of
        from tunefleet.stages.steering import remarks

        assert self.job is not None
        job, store = self.job, self._fleet.store
        tasks = store.tasks(job.job_id)
        if job.spec.kind is JobKind.TUNE:
            self._observer(Prepared(self.checked.peak_gflops))
        if not tasks:
            tasks = list(self._own(self._found_tasks()))
            store.put_tasks(job.job_id, tasks)
        if job.spec.kind is JobKind.TUNE:
            self._check_budget(job, tasks)
            models = self._fleet.place.models
            for text in remarks(models, job.spec, [weighted.task for weighted in tasks]):
                self._observer(Note(text))
        else:
            per_task = job.spec.budget.trials or 0
            self._opened(job, Budget(trials=max(1, per_task * len(tasks))))
        return search_of(store, job, self._observer, self._search_ended)

    def _found_tasks(self) -> Sequence[WeightedTask]:
        if self.plan.before == PREPARATION:
            return self.imported.tasks
        return self._result(StepKind.SPLIT, SplitTasks, self.run_id).tasks

    def _search_ended(self, ending: Ending) -> Sequence[Live]:
        self._searched, self._stopped = ending.end is JobEnd.DONE, ending.reason
        return self.ended(ending)

    def _check_budget(self, job: Job, tasks: Sequence[WeightedTask]) -> None:
        """Say before a search what it needs, and warn of a budget that is below that."""
        if not tasks or self._fleet.store.trial_count(job.job_id):
            return
        least = least_budget(tasks, job.spec.settings.search, self._forecast.round_s)
        self._observer(Note(least.text()))
        warning = least.warning(job.spec.budget)
        if warning:
            self._observer(Note(warning, warning=True))

    # What is known of it

    @property
    def is_prepared(self) -> bool:
        return self._fleet.store.step(StepKey(self.preparation.id, StepKind.CHECK)) is not None

    @property
    def imported(self) -> Imported:
        return self._result(StepKind.IMPORT, Imported, self.preparation.id)

    @property
    def checked(self) -> Checked:
        return self._result(StepKind.CHECK, Checked, self.preparation.id)

    def result(self) -> RunResult:
        """Everything that is known of the run by now."""
        from tunefleet.stages.result import build_result

        return build_result(self._fleet.place, self._delivery())

    def told(self) -> RunResult:
        """The result, written to the published artifact."""
        from tunefleet.stages.publish import tell

        if self._fleet.store.step(StepKey(self.run_id, StepKind.PUBLISH)) is not None:
            tell(self._fleet.place, self._delivery(), self._timeline())
        return self.result()

    def _timeline(self) -> str:
        """The page that the report links to; "" of a run that searched nothing."""
        from tunefleet.report.run_timeline import timeline_page
        from tunefleet.runs.timeline import build_timeline, without_other_names

        store, job = self._fleet.store, self.job
        if job is None or not store.stages(job.job_id):
            return ""
        return timeline_page(without_other_names(build_timeline(store, job)))

    def module(self) -> Path:
        """The shared library that is delivered."""
        from tunefleet.stages.delivered import delivered_module

        return delivered_module(self._fleet.place, self._request(StepKind.VERIFY))

    def _delivery(self) -> Delivery:
        from tunefleet.stages.place import Delivery

        return Delivery(
            self.run_id,
            self.preparation,
            self._settings,
            self.job,
            self._resumed,
            self._stopped,
            self._rounds,
            self._programs,
        )

    def _has_output(self, run: StepRun) -> bool:
        """Whether the files that a step made are still there."""
        objects = self._fleet.objects(run.key.owner)
        named = [getattr(run.result, name, None) for name in ("module", "examples", "expected")]
        return all(objects.has(name) for name in named if name is not None)

    def _result(self, kind: StepKind, expected: type[R], owner: str) -> R:
        run = self._fleet.store.step(StepKey(owner, kind))
        result: StepResult | None = None if run is None else run.result
        if not isinstance(result, expected):
            raise StepOrderError(f"{kind} is not done", cure="call from_network() before")
        return result

    def _use(self, owner: str) -> None:
        """Nobody removes the objects of an owner before `close`."""
        if owner not in self._used:
            self._held.enter_context(self._fleet.objects(owner).in_use())
            self._used.add(owner)
