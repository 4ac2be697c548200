"""Which weights the tasks of a network read, and how cold these are when the network runs."""

from __future__ import annotations

from collections.abc import Sequence

from tunefleet.core.task import TaskWeights, WeightedTask
from tunefleet.stages import work
from tunefleet.workers.pool import CallFailure, WorkerPool


def weights_of(
    tasks: Sequence[WeightedTask], pool: WorkerPool, timeout_s: float
) -> dict[str, TaskWeights]:
    """By task, of all tasks of one network; none for one that kills its worker."""
    results = pool.map(work.weights, [(t.task.program,) for t in tasks], timeout_s)
    known = [((), 0) if isinstance(f, CallFailure) else f for f in results]
    between = sum(t.weight * size for t, (_, size) in zip(tasks, known, strict=True))
    return {
        t.task.task_id: TaskWeights(arguments, between)
        for t, (arguments, _) in zip(tasks, known, strict=True)
    }
