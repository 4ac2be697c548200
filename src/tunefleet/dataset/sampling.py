"""Fewer records to train on: which ones are kept.

All samplers leave out invalid records and tasks with too few valid ones, keep at most `rate` of
the records given, and return ascending row numbers. Sources: `by_flops` Verma et al., Applied
Sciences 14(2):513, 2024, section 4.2; `diverse` takes up representativeness and diversity of the
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

#: Valid records below which a task says little about the order of its programs.
MIN_RECORDS = 16

#: How many programs of a task tell how crowded the place of each of them is.
_NEIGHBOURS = 64


@dataclass(frozen=True)
class SampleSize:
    """How much is kept: at most `rate` of all records, of tasks with `min_records` valid ones."""

    rate: float
    min_records: int = MIN_RECORDS

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InputError(
                f"a sampling rate of {self.rate:g} is not between 0 and 1",
                cure="give the share of records to keep",
            )
        if self.min_records < 1:
            raise InputError(f"{self.min_records} is no number of records", cure="give at least 1")

    def budget(self, rows: Rows) -> int:
        return max(1, math.floor(self.rate * len(rows)))


def eligible(rows: Rows, min_records: int = MIN_RECORDS) -> Codes:
    """Valid records of tasks that have at least `min_records` of them.

    Raises InputError when there are none.
    """
    valid = rows.valid
    counts = np.bincount(rows.task[valid], minlength=int(rows.task.max(initial=-1)) + 1)
    numbers = np.flatnonzero(valid & (counts[rows.task] >= min_records))
    if len(numbers) == 0:
        raise InputError(
            f"no task has {min_records} valid records", cure="lower the least number of records"
        )
    return numbers


def uniform(rows: Rows, amount: SampleSize, seed: int = 0) -> Codes:
    """Records drawn at random, all with the same chance."""
    among = eligible(rows, amount.min_records)
    size = min(amount.budget(rows), len(among))
    return np.sort(np.random.default_rng(seed).choice(among, size, replace=False))


def by_flops(rows: Rows, amount: SampleSize, flops: Mapping[str, float], seed: int = 0) -> Codes:
    """Whole tasks, drawn with the probability of their FLOPs until the amount is reached.

    `flops` are those of one run of a workload; the probability of a task is that of a floating
    point operation drawn from all tasks to be one of its own. Tasks are drawn without replacement,
    the last one is thinned at random to the amount. A task whose FLOPs are unknown or zero is
    never drawn. Raises InputError when that goes for all of them.
    """
    among = eligible(rows, amount.min_records)
    generator = np.random.default_rng(seed)
    tasks, first = np.unique(rows.task[among], return_index=True)
    names = [rows.workload.names[code] for code in rows.workload.codes[among[first]]]
    weight = np.array([flops.get(name, 0.0) for name in names], float)
    known = np.isfinite(weight) & (weight > 0)
    if not known.any():
        raise InputError(
            f"the FLOPs of none of {len(tasks)} tasks are known",
            cure="sample with another method, or give the FLOPs of the workloads",
        )
    # The smallest of exponential waiting times with these rates is task i with probability
    # rate_i / sum of rates; in their order they are draws without replacement.
    waiting = generator.exponential(size=len(tasks))[known] / weight[known]
    return _whole_tasks(rows, among, tasks[known][np.argsort(waiting)], amount, generator)


def _whole_tasks(
    rows: Rows, among: Codes, drawn: Codes, amount: SampleSize, generator: np.random.Generator
) -> Codes:
    """Records of tasks in the order `drawn`, at random within each, up to the amount."""
    turn = np.full(int(rows.task.max()) + 1, len(drawn))
    turn[drawn] = np.arange(len(drawn))
    shuffled = generator.permutation(among)
    in_turn = shuffled[np.argsort(turn[rows.task[shuffled]], kind="stable")]
    available = int((turn[rows.task[among]] < len(drawn)).sum())
    return np.sort(in_turn[: min(amount.budget(rows), available)])


def diverse(rows: Rows, amount: SampleSize, vectors: NDArray[np.float32], seed: int = 0) -> Codes:
    """Of every task the same share of its programs: unlike each other, and where many are.

    `vectors` has a row of features for each record. Programs of a task are taken one after the
    other, each time the one with the largest product of its distance to the nearest one taken
    (diversity) and of how crowded its place is (representativeness). TCL's third term, the
    uncertainty of a cost model, is left out: there is no model yet.
    """
    if len(vectors) != len(rows):
        raise ValueError(f"{len(vectors)} vectors for {len(rows)} records")
    among = eligible(rows, amount.min_records)
    generator = np.random.default_rng(seed)
    total = min(amount.budget(rows), len(among))
    order = among[np.argsort(rows.task[among], kind="stable")]
    bounds = np.flatnonzero(np.diff(rows.task[order], append=-1)) + 1
    # Rounded along the tasks, so that what one loses the next one has.
    sizes = np.diff(bounds * total // len(among), prepend=0)
    kept = [
        task[_spread(vectors[task].astype(np.float64), int(size), generator)]
        for task, size in zip(np.split(order, bounds[:-1]), sizes, strict=True)
    ]
    return np.sort(np.concatenate(kept))


def _spread(vectors: Vector, size: int, generator: np.random.Generator) -> Codes:
    """Numbers of `size` vectors, by diversity times representativeness."""
    squared = (vectors**2).sum(axis=1)
    nearby = generator.choice(len(vectors), min(_NEIGHBOURS, len(vectors)), replace=False)
    crowded = 1.0 / (1e-9 + np.mean([_distance(vectors, squared, i) for i in nearby], axis=0))
    chosen = np.empty(size, np.int64)
    nearest = np.full(len(vectors), np.inf)
    current = int(np.argmax(crowded))
    for i in range(size):
        chosen[i] = current
        nearest = np.minimum(nearest, _distance(vectors, squared, current))
        # What is taken, and what is equal to it, comes last but may be needed to fill up.
        nearest[current] = -1.0
        current = int(np.argmax(nearest * crowded))
    return chosen


def _distance(vectors: Vector, squared: Vector, to: int) -> Vector:
    """Euclidean distances to one vector, by the scalar product: no array of differences."""
    apart = squared + squared[to] - 2 * (vectors @ vectors[to])
    return np.asarray(np.sqrt(np.maximum(apart, 0.0)))
