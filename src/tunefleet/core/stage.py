"""The four stages of the loop of one task, as schedulable units.

A stage is named by its key and nothing else: whoever runs it reads its inputs from the store by
that key and commits its result to the store under that key, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tunefleet.core.step import StepKind
from tunefleet.core.trial import Built, Candidate, Failure, Measurement


class StageKind(StrEnum):
    SELECT = "select"
    BUILD = "build"
    PROFILE = "profile"
    UPDATE = "update"


#: The order of the stages within one iteration.
STAGE_ORDER = (StageKind.SELECT, StageKind.BUILD, StageKind.PROFILE, StageKind.UPDATE)


#: What a scheduler orders: stages of a task, or steps of a network.
WorkKind = StageKind | StepKind


@dataclass(frozen=True, slots=True, order=True)
class StageKey:
    """In a store `kind` is a StageKind. To a scheduler the steps of a network are one round of a
    lane whose task is "", so that one rule holds for both."""

    job_id: str
    task_id: str
    iteration: int
    kind: WorkKind

    def __str__(self) -> str:
        return f"{self.kind} {self.task_id[:8]}#{self.iteration} of job {self.job_id[:8]}"


@dataclass(frozen=True, slots=True)
class SelectResult:
    """`exhausted`: the search space has no unmeasured candidate left, the lane is complete."""

    candidates: tuple[Candidate, ...]
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class BuildResult:
    built: tuple[Built, ...]
    failed: tuple[tuple[str, Failure], ...] = ()


class Profiled(NamedTuple):
    """A candidate that was measured, in `profile_s` seconds of the device."""

    candidate_id: str
    measurement: Measurement
    profile_s: float


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """What became of a batch; failures by candidate id."""

    measured: tuple[Profiled, ...]
    failed: tuple[tuple[str, Failure], ...] = ()

    @property
    def drift(self) -> float:
        """How far the device's reference kernel moved meanwhile, 0 where nothing was measured."""
        return self.measured[0].measurement.drift if self.measured else 0.0


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """`model` is empty when the stage was skipped because too little was new."""

    model: bytes = b""
    trained_on: int = 0


StageResult = SelectResult | BuildResult | ProfileResult | UpdateResult


@dataclass(frozen=True, slots=True)
class StageRun:
    """A finished stage with the wall time it took. `seconds` comes in, it is not read here.

    `resource_id` is the resource it ran on ("" where nobody wrote it down), `attempt` the one that
    succeeded, counted from 1.
    """

    key: StageKey
    result: StageResult
    started_at: float
    seconds: float
    note: str = field(default="", compare=False)
    resource_id: str = ""
    attempt: int = 1

    @property
    def span(self) -> StageSpan:
        return StageSpan(self.key, self.resource_id, self.attempt, self.started_at, self.seconds)


@dataclass(frozen=True, slots=True)
class StageSpan:
    """When and where a finished stage ran, without its result; seconds since the epoch."""

    key: StageKey
    resource_id: str
    attempt: int
    started_at: float
    seconds: float

    @property
    def ended_at(self) -> float:
        return self.started_at + self.seconds
