"""What runs under the live shell: the search of a job, and the errands before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from tunefleet.core.events import (
    Event,
    LaneUpdated,
    Note,
    Observer,
    PhaseStarted,
    StageAbandoned,
    StageFinished,
    StageStarted,
)
from tunefleet.core.job import Job
from tunefleet.core.stage import STAGE_ORDER, StageKind
from tunefleet.core.task import Task
from tunefleet.fleet.executor import Assignment, Report
from tunefleet.scheduler.plan import FixedPlan
from tunefleet.scheduler.tuning_plan import LaneProgress, TuningPlan
from tunefleet.scheduler.values import ROLE_OF, JobEnd, JobRequest, Role, StartStage
from tunefleet.stages.runner import Lane

#: Errands go before searches: someone waits for what they bring.
_PRIORITY = 8
_LANE = "errands"


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
        """The id of the job whose user's wishes count, or ""."""

    def submitted(self) -> None: ...

    def assignment(self, start: StartStage, at: float) -> Assignment:
        """What an executor needs to run a stage."""

    def started(self, start: StartStage) -> None: ...

    def reported(self, report: Report, at: float, cause: str) -> None:
        """A stage ended; `cause` says why when it was not done."""

    def gave_up(self, task_id: str, reason: str) -> None:
        """A lane is not tried again."""

    def tell(self, event: Event) -> None: ...

    def ended(self, ending: Ending) -> Sequence[Live]:
        """What is to be submitted next."""


def _nothing_more(ending: Ending) -> Sequence[Live]:
    return ()


def _unwatched(event: Event) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Search:
    """The search of a job."""

    job: Job
    plan: TuningPlan
    tasks: dict[str, Task]
    observer: Observer
    request: JobRequest
    then: Callable[[Ending], Sequence[Live]] = _nothing_more

    @property
    def obeys(self) -> str:
        return self.job.job_id

    def submitted(self) -> None:
        self.observer(PhaseStarted("tune"))
        for lane in self.plan.progress.values():
            self.observer(_lane_event(lane))

    def assignment(self, start: StartStage, at: float) -> Assignment:
        key = start.key
        return Assignment(
            key=key,
            lease=start.lease,
            attempt=start.attempt,
            lane=Lane(self.job, self.tasks[key.task_id]),
            batch=self.plan.batch(key.task_id),
            elapsed_s=self.plan.elapsed_s(at),
        )

    def started(self, start: StartStage) -> None:
        self.observer(StageStarted(start.key, start.resource_id))

    def reported(self, report: Report, at: float, cause: str) -> None:
        key, run = report.assignment.key, report.run
        if run is None:
            self.observer(StageAbandoned(key, cause or "its worker was ended"))
            return
        self.observer(StageFinished(run, self.plan.trials, self.plan.elapsed_s(at)))
        self.observer(_lane_event(self.plan.progress[key.task_id]))

    def gave_up(self, task_id: str, reason: str) -> None:
        self.observer(Note(f"{self.tasks[task_id].name} is not tuned further: {reason}", True))

    def tell(self, event: Event) -> None:
        self.observer(event)

    def ended(self, ending: Ending) -> Sequence[Live]:
        return self.then(ending)


@dataclass(slots=True)
class Errands:
    """Steps that are no stages of a task but need the host or the device like them: importing a
    network, choosing winners, measuring the whole. They run one after the other.

    To the scheduler they are rounds of a lane; a stage that no step needs does nothing.
    """

    name: str
    steps: Sequence[tuple[Role, Callable[[], object]]]
    then: Callable[[Ending], Sequence[Live]] = _nothing_more
    obeys: str = ""
    observer: Observer = _unwatched
    request: JobRequest = field(init=False)
    _by_stage: dict[tuple[int, StageKind], Callable[[], object]] = field(init=False)

    def __post_init__(self) -> None:
        stages = ((i, kind) for i in count() for kind in STAGE_ORDER)
        self._by_stage = {}
        for role, step in self.steps:
            self._by_stage[next(s for s in stages if ROLE_OF[s[1]] is role)] = step
        rounds = 1 + max((iteration for iteration, _ in self._by_stage), default=0)
        # Each step needs what the one before it left, so none may be brought forward.
        self.request = JobRequest(
            self.name, FixedPlan({_LANE: rounds}), priority=_PRIORITY, lookahead=False
        )

    def submitted(self) -> None:
        pass

    def assignment(self, start: StartStage, at: float) -> Assignment:
        key = start.key
        errand = self._by_stage.get((key.iteration, key.kind), _do_nothing)
        return Assignment(key, start.lease, start.attempt, errand=errand)

    def started(self, start: StartStage) -> None:
        pass

    def reported(self, report: Report, at: float, cause: str) -> None:
        pass

    def gave_up(self, task_id: str, reason: str) -> None:
        pass

    def tell(self, event: Event) -> None:
        self.observer(event)

    def ended(self, ending: Ending) -> Sequence[Live]:
        return self.then(ending)


def _do_nothing() -> None:
    pass


def _lane_event(lane: LaneProgress) -> LaneUpdated:
    return LaneUpdated(
        lane.weighted, lane.trials, lane.failed, lane.best_s, lane.known_s, lane.exhausted
    )
