"""What runs under the live shell: the search of a job, and the steps before and after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    LaneUpdated,
    Note,
    Observer,
    PhaseStarted,
    StageAbandoned,
    StageCommitted,
    StageStarted,
    StepCommitted,
)
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job, JobKind
from tunefleet.core.phases import PHASE_OF, TUNE
from tunefleet.core.stage import StageRun, WorkKind
from tunefleet.core.step import StepKey, StepKind, StepRun
from tunefleet.core.task import Task
from tunefleet.core.waiting import WaitingTime
from tunefleet.costmodel.registry import SHIPPED
from tunefleet.fleet.clock import now
from tunefleet.fleet.executor import Assignment, Report
from tunefleet.scheduler.collection_plan import CollectionPlan
from tunefleet.scheduler.plan import StepPlan
from tunefleet.scheduler.tuning_plan import LaneProgress, TuningPlan
from tunefleet.scheduler.values import JobEnd, JobRequest, StartStage, at_home
from tunefleet.stages.place import JobTask, StepRequest
from tunefleet.stages.records import known_records
from tunefleet.store import Store

#: Steps go before searches: someone waits for what they bring.
_PRIORITY = 8


@dataclass(frozen=True, slots=True)
class Ending:
    """How something ended; `error` is what failed it."""

    end: JobEnd
    reason: str
    error: Exception | None = None


class Live(Protocol):
    """Something that the shell has submitted to its scheduler. The shell's thread calls all."""

    @property
    def request(self) -> JobRequest: ...

    @property
    def obeys(self) -> str:
        """The id of the job whose control requests count, or ""."""

    def submitted(self) -> None: ...

    def assignment(self, start: StartStage, at: float) -> Assignment:
        """What an executor needs to run a stage."""

    def started(self, start: StartStage) -> None: ...

    def finished(self, report: Report, at: float) -> None:
        """A stage ended, which the scheduler does not know yet."""

    def reported(self, report: Report, at: float, cause: str) -> None:
        """A stage ended; `cause` says why when it was not done."""

    def gave_up(self, task_id: str, reason: str) -> None:
        """A lane is not tried again."""

    def tell(self, event: Event) -> None: ...

    def ended(self, ending: Ending) -> Sequence[Live]:
        """What is to be submitted next."""


def _nothing_more(ending: Ending) -> Sequence[Live]:
    return ()


@dataclass(frozen=True, slots=True)
class Search:
    """The search of a job."""

    job: Job
    plan: TuningPlan
    tasks: dict[str, Task]
    observer: Observer
    request: JobRequest
    waiting: WaitingTime
    then: Callable[[Ending], Sequence[Live]] = _nothing_more

    @property
    def obeys(self) -> str:
        return self.job.job_id

    def submitted(self) -> None:
        self.observer(PhaseStarted(TUNE))
        for lane in self.plan.progress.values():
            self.observer(_lane_event(lane))

    def assignment(self, start: StartStage, at: float) -> Assignment:
        key = start.key
        self.plan.waited(self.waiting.began(start.lease, at))
        return Assignment(
            key=key,
            lease=start.lease,
            attempt=start.attempt,
            lane=JobTask(self.job, self.tasks[key.task_id]),
            batch=self.plan.batch(key.task_id),
            elapsed_s=self.plan.elapsed_s(at),
            again=start.again,
        )

    def started(self, start: StartStage) -> None:
        self.observer(StageStarted(start.key, start.resource_id))

    def finished(self, report: Report, at: float) -> None:
        worked_s = None if report.run is None else report.run.seconds
        self.plan.waited(self.waiting.ended(report.assignment.lease, at, worked_s))

    def reported(self, report: Report, at: float, cause: str) -> None:
        key, run = report.assignment.key, report.run
        if not isinstance(run, StageRun):
            self.observer(StageAbandoned(key, cause or "its worker was ended"))
            return
        self.observer(StageCommitted(run, self.plan.trials, self.plan.elapsed_s(at)))
        self.observer(_lane_event(self.plan.progress[key.task_id]))

    def gave_up(self, task_id: str, reason: str) -> None:
        self.observer(Note(f"{self.tasks[task_id].name} is not tuned further: {reason}", True))

    def tell(self, event: Event) -> None:
        self.observer(event)

    def ended(self, ending: Ending) -> Sequence[Live]:
        return self.then(ending)


@dataclass(slots=True)
class Steps:
    """Steps of one network, one after the other: before its search, or after it.

    To the scheduler they are one round of a lane. `done` are those that are committed, `again`
    those of them that are wanted once more. `watcher` is the id under which the shell knows them.
    `told` are the steps whose remarks the observer has heard. `deadline` is that of their job in
    seconds since the epoch; `before_search`: they hurry for it, since how long the search will take
    is not known.
    """

    watcher: str
    requests: Sequence[StepRequest]
    done: Mapping[StepKind, StepRun]
    observer: Observer
    then: Callable[[Ending], Sequence[Live]] = _nothing_more
    obeys: str = ""
    again: frozenset[StepKind] = frozenset()
    told: set[StepKey] = field(default_factory=set)
    deadline: float | None = None
    before_search: bool = False
    request: JobRequest = field(init=False)

    def __post_init__(self) -> None:
        done: frozenset[WorkKind] = frozenset(kind for kind in self.done if kind not in self.again)
        preparation = self.requests[0].preparation
        # Each step needs what the one before it left, so none may be brought forward.
        self.request = JobRequest(
            self.watcher,
            StepPlan(done),
            order=tuple(request.kind for request in self.requests),
            host_kind=at_home(preparation.toolchain.host),
            device_kind=preparation.device.hardware,
            priority=_PRIORITY,
            deadline=_at(self.deadline),
            following=None if self.before_search else (),
            lookahead=False,
            needs_home=True,
        )

    def submitted(self) -> None:
        pass

    def assignment(self, start: StartStage, at: float) -> Assignment:
        kind = start.key.kind
        request = next(r for r in self.requests if r.kind is kind)
        again = start.again or kind in self.again
        return Assignment(start.key, start.lease, start.attempt, step=request, again=again)

    def started(self, start: StartStage) -> None:
        self.observer(PhaseStarted(PHASE_OF[StepKind(start.key.kind)]))

    def finished(self, report: Report, at: float) -> None:
        pass

    def reported(self, report: Report, at: float, cause: str) -> None:
        if isinstance(report.run, StepRun):
            self.observer(StepCommitted(report.run.span))
            self.told.add(report.run.key)
            for remark in report.run.remarks:
                self.observer(Note(remark.text, remark.warning))

    def gave_up(self, task_id: str, reason: str) -> None:
        pass

    def tell(self, event: Event) -> None:
        self.observer(event)

    def ended(self, ending: Ending) -> Sequence[Live]:
        return self.then(ending)


def search_of(
    store: Store,
    job: Job,
    observer: Observer,
    then: Callable[[Ending], Sequence[Live]] = _nothing_more,
    until_s: float | None = None,
    pause_s: float | None = None,
    ends_by: float | None = None,
    budget: Budget | None = None,
    following: tuple[WorkKind, ...] = (),
) -> Search:
    """The search of a job, with everything that earlier processes committed of it. It ends once its
    tasks take `until_s` together, after `pause_s`, at `ends_by`, a time since the epoch, or with
    `budget`, without one the job's; steps of the kinds `following` are to be done by the job's
    deadline too."""
    spec, tasks, at = job.spec, store.work.tasks(job.job_id), now()
    committed = store.work.stages(job.job_id)
    plan: TuningPlan
    if spec.kind is JobKind.COLLECT:
        plan = CollectionPlan(
            tasks,
            spec.settings.search,
            spec.budget.trials or 0,
            committed=committed,
            elapsed_s=job.elapsed_s,
            now=at,
        )
    else:
        known: dict[str, float | None] = {}
        for weighted in tasks:
            records = known_records(store, JobTask(job, weighted.task), Tier.EXACT, 1)
            if records:
                known[weighted.task.task_id] = records[0].measurement.latency_s
        plan = TuningPlan(
            tasks,
            budget or spec.budget,
            spec.settings.search,
            known=known,
            committed=committed,
            elapsed_s=job.elapsed_s,
            now=at,
            first_model=bool(known),
            deadline=_at(ends_by),
            until_s=until_s,
            pause_s=pause_s,
            verified={
                task_id
                for task_id in known
                if store.records.best(task_id, spec.device, spec.toolchain, tenant=spec.tenant)
            },
        )
    host = spec.toolchain.host
    request = JobRequest(
        job.job_id,
        plan,
        # A model that was trained in the home is not on other hosts.
        host_kind=host if (SHIPPED / spec.settings.search.pretrained).is_dir() else at_home(host),
        device_kind=spec.measured_on,
        user=spec.terms.owner,
        priority=spec.terms.priority,
        deadline=_at(spec.terms.deadline),
        following=following,
        lookahead=spec.terms.look_ahead,
    )
    named = {w.task.task_id: w.task for w in tasks}
    return Search(job, plan, named, observer, request, WaitingTime(at), then)


def _at(epoch_s: float | None) -> float | None:
    """A time since the epoch on the shell's clock."""
    return None if epoch_s is None else now() + epoch_s - time.time()


def _lane_event(lane: LaneProgress) -> LaneUpdated:
    return LaneUpdated(
        lane.weighted, lane.trials, lane.failed, lane.best_s, lane.known_s, lane.exhausted
    )
