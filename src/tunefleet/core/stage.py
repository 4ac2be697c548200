"""The four stages of the loop of one task, as schedulable units.

A stage is identified by its key only. Its executor reads the inputs from the store by that key and
commits the result under that key, once.
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


#: The stages of one iteration in order.
STAGE_ORDER = (StageKind.SELECT, StageKind.BUILD, StageKind.PROFILE, StageKind.UPDATE)


#: The units of a scheduler: stages of a task, or steps of a network.
WorkKind = StageKind | StepKind


@dataclass(frozen=True, slots=True, order=True)
class StageKey:
    """In a store `kind` is a StageKind. A scheduler treats the steps of a network as one round of a
    lane whose task is "", so the same rules apply to both."""

    job_id: str
    task_id: str
    iteration: int
    kind: WorkKind

    def __str__(self) -> str:
        return f"{self.kind} {self.task_id[:8]}#{self.iteration} of job {self.job_id[:8]}"


@dataclass(frozen=True, slots=True)
class SelectResult:
    """`exhausted`: the search space has no unmeasured candidate left; the lane is complete."""

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
    """The outcomes of a batch; failures by candidate id."""

    measured: tuple[Profiled, ...]
    failed: tuple[tuple[str, Failure], ...] = ()

    @property
    def drift(self) -> float:
        """The relative change of the device's reference kernel, 0 if nothing was measured."""
        return self.measured[0].measurement.drift if self.measured else 0.0


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """`model` is empty if there were too few new records to train."""

    model: bytes = b""
    trained_on: int = 0


StageResult = SelectResult | BuildResult | ProfileResult | UpdateResult


@dataclass(frozen=True, slots=True)
class StageRun:
    """A finished stage with its wall time in `seconds`.

    `resource_id` is the resource that it ran on ("" if not recorded), `attempt` the number of the
    successful attempt, counted from 1.
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
    """Time and resource of a finished stage, without its result; seconds since the epoch."""

    key: StageKey
    resource_id: str
    attempt: int
    started_at: float
    seconds: float

    @property
    def ended_at(self) -> float:
        return self.started_at + self.seconds
