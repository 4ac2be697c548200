"""Seconds of a task on a device where it was not measured, from the tasks that were."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: So many tasks like it are asked.
_NEIGHBOURS = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """What of a task decides its time: the anchor operator, the FLOPs of one execution, and how
    many numbers it reads and writes."""

    operator: str
    flops: float
    numbers: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A task that was measured: its best seconds on a device."""

    workload: Workload
    seconds: float


def predicted_s(workload: Workload, timed: Sequence[Timed]) -> float | None:
    """The geometric mean of what the three most similar tasks of one device suggest, of the same
    operator where there are any; None without any.

    Each suggests its own time, scaled by the FLOPs, or by the numbers moved where these grow by
    more: a task is bound by one of them. Similar is what differs least in the logarithms of both.
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
    """The median factor (1.0 is exact) by which the tasks of a device differ from their predictions
    by the others; None for fewer than two."""
    factors = []
    for index, each in enumerate(timed):
        others = [*timed[:index], *timed[index + 1 :]]
        predicted = predicted_s(each.workload, others)
        if predicted is not None:
            factors.append(math.exp(abs(math.log(predicted / each.seconds))))
    return statistics.median(factors) if factors else None


def _log(amount: float) -> float:
    """Transposes have no FLOPs."""
    return math.log(max(amount, 1.0))


def _growth(known: Workload, wanted: Workload) -> float:
    """The logarithm of how many times as long the wanted one takes: of the two ratios the one
    that is further from one."""
    ratios = (_log(wanted.flops) - _log(known.flops), _log(wanted.numbers) - _log(known.numbers))
    return max(ratios, key=abs)


def _distance(a: Workload, b: Workload) -> float:
    return math.hypot(_log(a.flops) - _log(b.flops), _log(a.numbers) - _log(b.numbers))
