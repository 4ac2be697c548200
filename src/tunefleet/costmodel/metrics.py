"""Ranking and prediction metrics of TenSet, and the baseline of a random ranking.

Labels are `best latency / latency` within a task, 0 for a failed trial; higher is better. Failed
trials stay in every metric. Per-task values are averaged weighted by the number of records of the
task, as TenSet's `evaluate_model` does. Source: Zheng et al., TenSet, NeurIPS 2021 Datasets &
Benchmarks, and its `metric.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: TenSet's divisor instead of a failed trial's label of zero.
LEAST_LABEL = 1e-5


def pairwise_accuracy(labels: Vector, scores: Vector) -> float:
    """Share of pairs that scores and labels order equally (PCA), 0.5 for fewer than two programs.

    TenSet's definition: over pairs i < j in the given order, `score_i > score_j` is compared with
    `label_i > label_j`, so a tie counts as "not greater". A stable sort treats ties like that, so
    agreeing pairs are those in equal order in both sortings: O(n log n).
    """
    n = len(labels)
    if n <= 1:
        return 0.5
    by_label = np.argsort(labels, kind="stable")
    place = np.empty(n, np.int64)
    place[np.argsort(scores, kind="stable")] = np.arange(n)
    return 1.0 - inversions(place[by_label]) / (n * (n - 1) / 2)


def inversions(permutation: NDArray[np.int64]) -> int:
    """The number of pairs i < j with `permutation[i] > permutation[j]`, for 0..n-1 permuted.

    A radix sort from the highest bit: before a bit is sorted, a pair that it would swap is a one
    before a zero within a group of equal higher bits.
    """
    current, count = permutation, 0
    for bit in reversed(range(max(1, len(permutation) - 1).bit_length())):
        ones = (current >> bit) & 1
        before = np.cumsum(ones) - ones
        start = (current >> (bit + 1)) << (bit + 1)
        ones_in_group = before - before[start]
        count += int(ones_in_group[ones == 0].sum())
        zeros_in_group = np.arange(len(current)) - start - ones_in_group
        sorted_ = np.empty_like(current)
        moved = np.where(ones == 1, start + (1 << bit) + ones_in_group, start + zeros_in_group)
        sorted_[moved] = current
        current = sorted_
    return count


def best_first(scores: Vector) -> NDArray[np.int64]:
    """Row indices by descending score; of equal scores the last row comes first."""
    return np.argsort(scores, kind="stable")[::-1]


def top_k(labels: Vector, scores: Vector, k: int) -> float:
    """Best latency of a task / best latency among its k best scores."""
    return float(max(labels[best_first(scores)[:k]].max() / labels.max(), LEAST_LABEL))


def rmse(labels: Vector, scores: Vector) -> float:
    return float(np.sqrt(np.mean((scores - labels) ** 2)))


def r_squared(labels: Vector, scores: Vector) -> float:
    """Coefficient of determination; 1 for nearly equal labels, as in TenSet."""
    total = float(((labels - labels.mean()) ** 2).sum())
    return 1.0 if total < 1e-6 else 1.0 - float(((labels - scores) ** 2).sum()) / total


def expected_best(labels: Vector, k: int) -> Vector:
    """Expected best label among j = 1..k rows drawn at random without replacement, exactly."""
    ascending = np.sort(labels)
    n = len(ascending)
    # Probability that j rows are all among the i lowest: product over m < j of (i - m) / (n - m).
    chance = np.ones(n + 1)
    lowest = np.arange(n + 1)
    best = np.empty(min(k, n))
    for j in range(min(k, n)):
        chance = chance * np.maximum(lowest - j, 0) / (n - j)
        best[j] = np.diff(chance) @ ascending
    return best


@dataclass(frozen=True)
class Ranking:
    """Metrics of a ranking, each between 0 and 1."""

    pca: float
    top1: float
    top5: float


_TASK: dict[str, Callable[[Vector, Vector], float]] = {
    "pca": pairwise_accuracy,
    "top1": lambda y, s: top_k(y, s, 1),
    "top5": lambda y, s: top_k(y, s, 5),
}


def _expected(labels: Vector) -> Mapping[str, float]:
    """The exact expectation of each value of `Ranking` for a random ranking of a task."""
    best = expected_best(labels, 5) / labels.max()
    return {
        "pca": 0.5,
        "top1": max(best[0], LEAST_LABEL),
        "top5": max(best[-1], LEAST_LABEL),
    }


def _by_task(labels: Vector, tasks: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The rows of each task with a valid trial, in the given order."""
    if len(labels) != len(tasks):
        raise ValueError(f"{len(labels)} labels and {len(tasks)} tasks")
    order = np.argsort(tasks, kind="stable")
    bounds = np.flatnonzero(np.diff(tasks[order])) + 1
    for rows in np.split(order, bounds):
        if len(rows) and labels[rows].max() > 0:
            yield rows


def ranking(labels: Vector, scores: Vector, tasks: NDArray[np.int64]) -> Ranking:
    """Means over tasks, weighted by their records; `tasks` is the task index of each row.

    Tasks without a valid trial have no best latency and are skipped. Raises ValueError if no task
    is left.
    """
    parts = [
        (len(rows), {name: of(labels[rows], scores[rows]) for name, of in _TASK.items()})
        for rows in _by_task(labels, tasks)
    ]
    return _weighted(parts)


def random_ranking(labels: Vector, tasks: NDArray[np.int64]) -> Ranking:
    """The exact expectation of `ranking` for random scores."""
    return _weighted([(len(rows), _expected(labels[rows])) for rows in _by_task(labels, tasks)])


def _weighted(parts: Sequence[tuple[int, Mapping[str, float]]]) -> Ranking:
    if not parts:
        raise ValueError("no task with a valid trial")
    weights = [records for records, _ in parts]
    means = {
        name: float(np.average([values[name] for _, values in parts], weights=weights))
        for name in _TASK
    }
    return Ranking(**means)
