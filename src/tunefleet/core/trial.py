"""Candidates and their outcomes: a measurement, or a failure with a kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why a trial has no latency. A failure is data, never a magic latency."""

    INSTANTIATE = "instantiate"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    BUILD_CRASH = "build_crash"
    BUILD_MEMORY = "build_memory"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    RUN_CRASH = "run_crash"
    RUN_MEMORY = "run_memory"
    WRONG_ANSWER = "wrong_answer"


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureKind
    text: str


#: The quantile of a candidate's repeats by which it is ranked.
RANKING_QUANTILE = 0.1

#: Seconds of each of several consecutive runs.
Timer = Callable[[int], list[float]]


def ranking_latency(latencies_s: tuple[float, ...]) -> float:
    """The latency for ranking candidates: the 10th percentile of the repeats, in seconds.

    Other programs on a shared machine only add time. They move the median of a kernel from minute
    to minute, but hardly its low quantile.
    """
    ordered = sorted(latencies_s)
    position = RANKING_QUANTILE * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Every repeat of one candidate, in seconds per run.

    `drift` is the relative change of the reference kernel over the batch (0.01 = 1 %). `shared`:
    other jobs measured on the device meanwhile, on purpose.
    """

    latencies_s: tuple[float, ...]
    drift: float = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.latencies_s or min(self.latencies_s) <= 0:
            raise ValueError("a measurement needs at least one positive latency")
        if not all(map(math.isfinite, (*self.latencies_s, self.drift))):
            raise ValueError("a measurement needs finite numbers")

    @property
    def latency_s(self) -> float:
        return ranking_latency(self.latencies_s)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One program of a task: a schedule trace with its decisions.

    `candidate_id` is the digest of `trace` (canonical JSON), so the same program of the same task
    has the same id in every job. `features` is the input of the cost model (bytes of the feature
    schema named in the job's settings), `score` its prediction at selection.
    """

    candidate_id: str
    trace: str
    score: float = 0.0
    features: bytes = b""


@dataclass(frozen=True, slots=True)
class WeightOrder:
    """How a program takes one of its weights: the array of shape `given` with the indices `taken`
    along some axes, in place of all, its axes as long as `padded`, divided into axes of the extents
    `digits`, and these in another `order`, in the shape that the program's argument has."""

    argument: int
    given: tuple[int, ...]
    taken: tuple[tuple[int, tuple[int, ...]], ...]
    padded: tuple[int, ...]
    digits: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled candidate: the path of its shared library and its argument types.

    `args` are (shape, dtype) of the built function; they differ from the task's if weights are
    packed, as `packings` say. `build_s` is in CPU seconds, `path` is unique to this build. `code`
    is the path of its object file.
    """

    candidate_id: str
    path: str
    args: tuple[tuple[tuple[int, ...], str], ...]
    build_s: float
    code: str = ""
    packings: tuple[WeightOrder, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """The stored outcome of one candidate in one job."""

    candidate: Candidate
    iteration: int
    outcome: Measurement | Failure
    build_s: float = 0.0
    profile_s: float = 0.0

    @property
    def latency_s(self) -> float | None:
        return self.outcome.latency_s if isinstance(self.outcome, Measurement) else None
