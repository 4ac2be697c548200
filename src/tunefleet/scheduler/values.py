"""The scheduler's interface as values: resources, events and instructions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tunefleet.core.stage import STAGE_ORDER, StageKey, StageKind, WorkKind
from tunefleet.core.step import StepKind
from tunefleet.scheduler.plan import Plan


class Role(StrEnum):
    HOST = "host"
    DEVICE = "device"


#: The role of the resource on which each kind of stage and step runs.
ROLE_OF: dict[WorkKind, Role] = {
    StageKind.SELECT: Role.HOST,
    StageKind.BUILD: Role.HOST,
    StageKind.PROFILE: Role.DEVICE,
    StageKind.UPDATE: Role.HOST,
    StepKind.SPLIT: Role.HOST,
    StepKind.IMPORT: Role.HOST,
    StepKind.CHECK: Role.DEVICE,
    StepKind.BASELINE: Role.DEVICE,
    StepKind.BUILD_FINALISTS: Role.HOST,
    StepKind.SELECT_WINNERS: Role.DEVICE,
    StepKind.COMPILE: Role.HOST,
    StepKind.VERIFY: Role.DEVICE,
    StepKind.PUBLISH: Role.HOST,
    StepKind.MEASURE: Role.DEVICE,
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource for stages. `units` are the physical units that it owns (cores, GPUs). `beside`
    are units that its stages use as well without measuring them: those of several resources may at
    once, and none does while a stage of a resource that owns them runs.

    `kind` is what a lane requests: the kind of host, or the exact identity of the device.
    Two stages whose units intersect never run together unless both resources are `shareable`;
    `slots` is the number of stages that may run at once on a shareable resource. A device is
    shareable only where an experiment is about what stages do to each other. `also` is another kind
    that it serves too.
    """

    resource_id: str
    role: Role
    kind: str
    units: frozenset[str]
    shareable: bool = False
    slots: int = 1
    beside: frozenset[str] = frozenset()
    also: str = ""

    def __post_init__(self) -> None:
        if self.slots < 1 or (self.slots > 1 and not self.shareable):
            raise ValueError(f"{self.resource_id}: {self.slots} slots need a shareable resource")


def at_home(kind: str) -> str:
    """The kind of a host or device that has the files of the home too, as only those of its own
    machine have. It comes before others in the order of pools, so that steps, for which a job
    waits, go first."""
    return f"(home) {kind}"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """`plan` decides which lane starts the next round and when the job ends.

    Higher `priority` goes first; `deadline` is a time of the shell's clock, by which work of the
    kinds `following` has to be done after this, None where how much that is is not known. `width`
    is the most lanes with an open round. `lookahead`: whether an idle host may select and build a
    lane's next batch before the current one is profiled; None leaves that to the policy. `order`
    is the sequence of stages in a round. `needs_home`: what is measured needs the files of the
    home.
    """

    job_id: str
    plan: Plan
    order: tuple[WorkKind, ...] = STAGE_ORDER
    host_kind: str = "host"
    device_kind: str = "device"
    user: str = ""
    priority: int = 0
    deadline: float | None = None
    following: tuple[WorkKind, ...] | None = ()
    width: int | None = None
    lookahead: bool | None = None
    needs_home: bool = False


#: The end reason of a job that its user cancelled.
CANCELLED = "cancelled by its user"


class End(StrEnum):
    """How a stage's attempt ended on its worker."""

    DONE = "done"
    FAILED = "failed"  # the stage raised, or its worker died
    LOST = "lost"  # the output of an earlier stage of its round is gone
    AWAY = "away"  # its device did not answer or is unusable; the stage itself is fine
    ABANDONED = "abandoned"  # as instructed


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    at: float
    request: JobRequest
    cause: str = "submitted"


@dataclass(frozen=True, slots=True)
class JobCancelled:
    at: float
    job_id: str
    cause: str = CANCELLED


@dataclass(frozen=True, slots=True)
class JobPaused:
    at: float
    job_id: str
    cause: str = "paused by its user"


@dataclass(frozen=True, slots=True)
class JobResumed:
    at: float
    job_id: str
    cause: str = "resumed by its user"


@dataclass(frozen=True, slots=True)
class StageFinished:
    """An attempt ended. `result` goes to the plan, `drift` is the change of the device's reference
    kernel. `lost` is the stage of the same round whose output was not found."""

    at: float
    key: StageKey
    lease: int
    end: End
    seconds: float
    result: object = None
    drift: float = 0.0
    cause: str = ""
    lost: WorkKind | None = None


@dataclass(frozen=True, slots=True)
class ResourceJoined:
    at: float
    resource: Resource
    cause: str = "joined"


@dataclass(frozen=True, slots=True)
class ResourceLost:
    at: float
    resource_id: str
    cause: str = "lost"


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """A worker sent no heartbeat within its lease: it is unknown whether it still runs."""

    at: float
    lease: int
    cause: str = "no heartbeat within the lease"


@dataclass(frozen=True, slots=True)
class TimerFired:
    at: float
    timer: str
    cause: str = "timer"


Event = (
    JobSubmitted
    | JobCancelled
    | JobPaused
    | JobResumed
    | StageFinished
    | ResourceJoined
    | ResourceLost
    | LeaseExpired
    | TimerFired
)


@dataclass(frozen=True, slots=True)
class StartStage:
    """`waited_s` is the time for which the stage was ready. `again`: it finished before and its
    output was lost."""

    key: StageKey
    resource_id: str
    lease: int
    attempt: int
    waited_s: float = 0.0
    again: bool = False


@dataclass(frozen=True, slots=True)
class AbandonStage:
    """Terminate the worker that holds the lease; report StageFinished(ABANDONED) afterwards."""

    key: StageKey
    resource_id: str
    lease: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUpLane:
    """A stage of the lane is poison: the task is not tried again, its job continues."""

    job_id: str
    task_id: str
    reason: str


class JobEnd(StrEnum):
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FinishJob:
    job_id: str
    end: JobEnd
    reason: str


@dataclass(frozen=True, slots=True)
class QuarantineResource:
    """No stage starts on the resource before the time `until`."""

    resource_id: str
    reason: str
    until: float


@dataclass(frozen=True, slots=True)
class SetTimer:
    timer: str
    at: float


Instruction = StartStage | AbandonStage | GiveUpLane | FinishJob | QuarantineResource | SetTimer
