"""Boosted trees on programs of several rows ("pack sum" of Ansor, OSDI 2020, section 5.2).

The score of a program is the sum of its rows' scores; the loss is the squared error of that sum
against the label, weighted by the label so that fast programs count more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import ProgramRows, Scores, stack


@dataclass(frozen=True)
class PackSum:
    """The rows of programs with the data for the loss."""

    rows: NDArray[np.float32]
    starts: NDArray[np.int64]
    labels: Scores
    #: The base score of each program.
    offset: Scores

    @classmethod
    def of(
        cls, programs: Sequence[ProgramRows], labels: Scores, offset: Scores | None = None
    ) -> PackSum:
        if len(programs) != len(labels) or len(programs) == 0:
            raise ValueError(f"{len(programs)} programs and {len(labels)} labels")
        rows, starts = stack(programs)
        start = np.zeros(len(labels)) if offset is None else np.asarray(offset, np.float64)
        return cls(rows, starts, np.asarray(labels, np.float64), start)

    def sums(self, scores: NDArray[Any]) -> NDArray[Any]:
        """The scores of programs from the scores of their rows."""
        if len(self.starts) == len(scores):
            return np.asarray(self.offset + scores)
        return np.asarray(self.offset + np.add.reduceat(scores, self.starts))

    def gradient(self, scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """First and second derivative of the loss with respect to each row's score."""
        weights = 0.1 + self.labels
        first = (self.sums(scores) - self.labels) * weights
        counts = np.diff(np.append(self.starts, len(self.rows)))
        return np.repeat(first, counts), np.repeat(weights, counts)

    def rmse(self, scores: NDArray[Any]) -> float:
        return float(np.sqrt(np.mean((self.sums(scores) - self.labels) ** 2)))


def predicted(
    programs: Sequence[ProgramRows], columns: int, of_rows: Callable[[NDArray[np.float32]], Any]
) -> Scores:
    """Scores of programs by a booster on rows with `columns` columns."""
    if len(programs) == 0:
        return np.zeros(0)
    rows, starts = stack(programs)
    if rows.shape[1] != columns:
        raise ValueError(f"features have {rows.shape[1]} columns, the model {columns}")
    scores = np.asarray(of_rows(rows), np.float64)
    return np.asarray(np.add.reduceat(scores, starts))
