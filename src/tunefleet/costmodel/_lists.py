"""Measured programs as lists of one task each, for learning to rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import metrics
from tunefleet.costmodel._base import LabelledPrograms, Scores


def numbers_of(tasks: Sequence[str]) -> NDArray[np.int64]:
    return np.unique(np.asarray(tasks), return_inverse=True)[1]


def groups_of(tasks: Sequence[str]) -> list[NDArray[np.int64]]:
    numbers = numbers_of(tasks)
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def batches(
    groups: list[NDArray[np.int64]], generator: np.random.Generator, longest: int, together: int
) -> Iterator[list[NDArray[np.int64]]]:
    """Batches of `together` lists in random order; each list has at most `longest` programs of one
    task. Every program occurs once."""
    lists = []
    for group in groups:
        shuffled = generator.permutation(group)
        lists += np.array_split(shuffled, -(-len(shuffled) // longest))
    order = generator.permutation(len(lists))
    for start in range(0, len(lists), together):
        yield [lists[i] for i in order[start : start + together]]


def set_aside(
    given: LabelledPrograms, generator: np.random.Generator
) -> tuple[LabelledPrograms, LabelledPrograms]:
    """Splits off a tenth of the programs as validation; with too few, all are in both parts."""
    count = len(given.labels) // 10
    if count < 2:
        return given, given
    order = generator.permutation(len(given.labels))
    return given.take(np.sort(order[count:])), given.take(np.sort(order[:count]))


def pairs_ordered(labels: Scores, scores: Scores, numbers: NDArray[np.int64]) -> float:
    """The share of correctly ordered pairs, 0 without a valid program."""
    return metrics.ranking(labels, scores, numbers).pca if labels.max() > 0 else 0.0
