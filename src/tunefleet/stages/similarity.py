"""Which tasks are like a task, by what they are: the nearest lend it their schedules."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tunefleet.core.task import Task
from tunefleet.store import BestRecord


def nearest(task: Task, best_records: Sequence[BestRecord], count: int) -> list[BestRecord]:
    """At most `count` of those with arguments of as many dimensions, the most similar first."""
    own = _extents(task.shapes)
    ranked = []
    for best_record in best_records:
        others = _extents(best_record.shapes)
        if [len(e) for e in others] == [len(e) for e in own]:
            ranked.append((distance(own, others), best_record.task_id, best_record))
    return [best_record for _, _, best_record in sorted(ranked)[:count]]


def distance(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]) -> float:
    """Root of the sum of squares over all extents of log2 of their ratio."""
    pairs = (pair for a, b in zip(first, second, strict=True) for pair in zip(a, b, strict=True))
    return math.sqrt(sum(math.log2(a / b) ** 2 for a, b in pairs))


def _extents(shapes: str) -> list[list[int]]:
    """Of `1x56x56x64 3x3x64x64 -> 1x56x56x64`."""
    return [
        [max(1, int(n)) for n in re.findall(r"\d+", shape)]
        for shape in shapes.split()
        if shape != "->"
    ]
