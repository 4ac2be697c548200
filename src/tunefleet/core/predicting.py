"""Predicts the latency of a task on a device from other tasks measured there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: The number of similar tasks in a prediction.
_NEIGHBOURS = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """The properties of a task that decide its latency: the anchor operator, the FLOPs of one
    execution, and the number of elements that it reads and writes."""

    operator: str
    flops: float
    numbers: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A measured task with its best latency on a device in seconds."""

    workload: Workload
    seconds: float


def predicted_s(workload: Workload, timed: Sequence[Timed]) -> float | None:
    """The geometric mean of the estimates of the three most similar tasks of one device, preferring
    tasks of the same operator; None without any.

    Each estimate is the task's own latency, scaled by the ratio of FLOPs or of elements moved,
    whichever grows more: a task is bound by one of them. Similarity is the distance in the
    logarithms of both.
    """
    same = [each for each in timed if each.workload.operator == workload.operator]
    nearest = sorted(same or timed, key=lambda each: _distance(workload, each.workload))
    if not nearest:
        return None
    logs = [
        math.log(each.seconds) + _growth(each.workload, workload) for each in nearest[:_NEIGHBOURS]
    ]
    return math.exp(statistics.mean(logs))


def typical_error(timed: Sequence[Timed]) -> float | None:
    """The median factor (1.0 is exact) between the tasks of a device and their leave-one-out
    predictions; None for fewer than two tasks."""
    factors = []
    for index, each in enumerate(timed):
        others = [*timed[:index], *timed[index + 1 :]]
        predicted = predicted_s(each.workload, others)
        if predicted is not None:
            factors.append(math.exp(abs(math.log(predicted / each.seconds))))
    return statistics.median(factors) if factors else None


def _log(amount: float) -> float:
    """The logarithm, also of 0: transposes have no FLOPs."""
    return math.log(max(amount, 1.0))


def _growth(known: Workload, wanted: Workload) -> float:
    """The logarithm of the factor on the latency: the one of the two ratios that is further from
    one."""
    ratios = (_log(wanted.flops) - _log(known.flops), _log(wanted.numbers) - _log(known.numbers))
    return max(ratios, key=abs)


def _distance(a: Workload, b: Workload) -> float:
    return math.hypot(_log(a.flops) - _log(b.flops), _log(a.numbers) - _log(b.numbers))
