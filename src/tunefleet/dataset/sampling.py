"""Samplers that reduce the number of training records.

All samplers drop invalid records and tasks with too few valid ones, keep at most `rate` of the
records, and return ascending row indices. Sources: `by_flops` is from Verma et al., Applied
Sciences 14(2):513, 2024, section 4.2; `diverse` uses representativeness and diversity of the
sampler of TCL, arXiv 2604.12891.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunefleet.dataset.rows import Codes, Rows, Vector
from tunefleet.errors import InputError

#: The minimum number of valid records for a meaningful ranking of a task's programs.
MIN_RECORDS = 16

#: The number of programs per task for estimating the density around each program.
_NEIGHBOURS = 64


@dataclass(frozen=True)
class SampleSize:
    """At most `rate` of all records, from tasks with at least `min_records` valid ones."""

    rate: float
    min_records: int = MIN_RECORDS

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(
                f"a sampling rate of {self.rate:g} is not between 0 and 1",
                cure="give the share of the records to keep",
            )
        if self.min_records < 1:
            raise InputError(f"min_records is {self.min_records}", cure="give at least 1")

    def budget(self, rows: Rows) -> int:
        return max(1, math.floor(self.rate * len(rows)))


def eligible(rows: Rows, min_records: int = MIN_RECORDS) -> Codes:
    """Valid records of tasks with at least `min_records` of them.

    Raises InputError if there are none.
    """
    valid = rows.valid
    counts = np.bincount(rows.task[valid], minlength=int(rows.task.max(initial=-1)) + 1)
    numbers = np.flatnonzero(valid & (counts[rows.task] >= min_records))
    if len(numbers) == 0:
        raise InputError(
            f"no task has {min_records} valid records", cure="lower the minimum number of records"
        )
    return numbers


def uniform(rows: Rows, amount: SampleSize, seed: int = 0) -> Codes:
    """Records drawn uniformly at random."""
    among = eligible(rows, amount.min_records)
    size = min(amount.budget(rows), len(among))
    return np.sort(np.random.default_rng(seed).choice(among, size, replace=False))


def by_flops(rows: Rows, amount: SampleSize, flops: Mapping[str, float], seed: int = 0) -> Codes:
    """Whole tasks, drawn with probability proportional to their FLOPs until the amount is reached.

    `flops` are those of one execution of a workload. Tasks are drawn without replacement; the last
    one is reduced at random to the amount. Tasks with unknown or zero FLOPs are never drawn. Raises
    InputError if there are no others.
    """
    among = eligible(rows, amount.min_records)
    generator = np.random.default_rng(seed)
    tasks, first = np.unique(rows.task[among], return_index=True)
    names = [rows.workload.names[code] for code in rows.workload.codes[among[first]]]
    weight = np.array([flops.get(name, 0.0) for name in names], float)
    known = np.isfinite(weight) & (weight > 0)
    if not known.any():
        raise InputError(
            f"the FLOPs of all {len(tasks)} tasks are unknown",
            cure="use another sampling method, or give the FLOPs of the workloads",
        )
    # The minimum of exponential variables with these rates is task i with probability
    # rate_i / sum of rates; sorted, they are draws without replacement.
    waiting = generator.exponential(size=len(tasks))[known] / weight[known]
    return _whole_tasks(rows, among, tasks[known][np.argsort(waiting)], amount, generator)


def _whole_tasks(
    rows: Rows, among: Codes, drawn: Codes, amount: SampleSize, generator: np.random.Generator
) -> Codes:
    """Records of the tasks in the order `drawn`, in random order per task, up to the amount."""
    turn = np.full(int(rows.task.max()) + 1, len(drawn))
    turn[drawn] = np.arange(len(drawn))
    shuffled = generator.permutation(among)
    in_turn = shuffled[np.argsort(turn[rows.task[shuffled]], kind="stable")]
    available = int((turn[rows.task[among]] < len(drawn)).sum())
    return np.sort(in_turn[: min(amount.budget(rows), available)])


def diverse(rows: Rows, amount: SampleSize, vectors: NDArray[np.float32], seed: int = 0) -> Codes:
    """The same share of the programs of every task, chosen to be diverse and representative.

    `vectors` has a row of features per record. Programs of a task are taken greedily by the product
    of the distance to the nearest one taken (diversity) and the local density
    (representativeness). TCL's third term, the uncertainty of a cost model, is omitted, since there
    is no model yet.
    """
    if len(vectors) != len(rows):
        raise ValueError(f"{len(vectors)} vectors for {len(rows)} records")
    among = eligible(rows, amount.min_records)
    generator = np.random.default_rng(seed)
    total = min(amount.budget(rows), len(among))
    order = among[np.argsort(rows.task[among], kind="stable")]
    bounds = np.flatnonzero(np.diff(rows.task[order], append=-1)) + 1
    # Carry the rounding error over to the next task.
    sizes = np.diff(bounds * total // len(among), prepend=0)
    kept = [
        task[_spread(vectors[task].astype(np.float64), int(size), generator)]
        for task, size in zip(np.split(order, bounds[:-1]), sizes, strict=True)
    ]
    return np.sort(np.concatenate(kept))


def _spread(vectors: Vector, size: int, generator: np.random.Generator) -> Codes:
    """Indices of `size` vectors, chosen by diversity times representativeness."""
    squared = (vectors**2).sum(axis=1)
    nearby = generator.choice(len(vectors), min(_NEIGHBOURS, len(vectors)), replace=False)
    crowded = 1.0 / (1e-9 + np.mean([_distance(vectors, squared, i) for i in nearby], axis=0))
    chosen = np.empty(size, np.int64)
    nearest = np.full(len(vectors), np.inf)
    current = int(np.argmax(crowded))
    for i in range(size):
        chosen[i] = current
        nearest = np.minimum(nearest, _distance(vectors, squared, current))
        # Taken programs and duplicates come last, but may be needed to fill up.
        nearest[current] = -1.0
        current = int(np.argmax(nearest * crowded))
    return chosen


def _distance(vectors: Vector, squared: Vector, to: int) -> Vector:
    """Euclidean distances to one vector, by scalar products without an array of differences."""
    apart = squared + squared[to] - 2 * (vectors @ vectors[to])
    return np.asarray(np.sqrt(np.maximum(apart, 0.0)))
