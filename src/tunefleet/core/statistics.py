"""Medians with confidence intervals; every reported latency has one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Median with the bounds of its 95 % confidence interval."""

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        return Interval(self.median * factor, self.low * factor, self.high * factor)

    def inverse(self) -> Interval:
        """Of the reciprocals."""
        return Interval(1 / self.median, 1 / self.high, 1 / self.low)

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def interval(values: Sequence[float]) -> Interval:
    """Median and its distribution-free interval from order statistics (binomial, 95 %).

    With fewer than six values no such interval exists, and the range is returned instead.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    n = len(ordered)
    rank = 0
    if n >= 6:
        tail = 0.0
        for k in range(n // 2):
            tail += math.comb(n, k) / 2**n
            if tail > 0.025:
                break
            rank = k
    return Interval(median(ordered), ordered[rank], ordered[n - 1 - rank])
