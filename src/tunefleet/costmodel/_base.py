"""The CostModel protocol.

scikit-learn manners: the constructor stores its parameters, `fit` learns from nothing, `predict`
scores. A program is an array (rows, columns) of one feature schema: a row for each store, for each
primitive, or one row in all. A label is `best latency / latency` within its task and device, in
(0, 1], 0 for a failed trial; a score is higher for a faster program and comparable within a task
only.

**Threads.** A model is used by one thread. **Errors.** `predict` before `fit` and programs of
another schema raise ValueError. **State.** `save` returns bytes without pickle that `load`
turns into an equal model; loading foreign bytes raises ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

Program = NDArray[np.float32]
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """Programs with their labels and the names of their tasks."""

    programs: Sequence[Program]
    labels: Scores
    tasks: Sequence[str]

    def __post_init__(self) -> None:
        if not len(self.programs) == len(self.labels) == len(self.tasks) > 0:
            raise ValueError(
                f"{len(self.programs)} programs, {len(self.labels)} labels and "
                f"{len(self.tasks)} tasks"
            )

    def take(self, numbers: NDArray[np.int64]) -> Measured:
        return Measured(
            [self.programs[i] for i in numbers],
            self.labels[numbers],
            [self.tasks[i] for i in numbers],
        )


class CostModel(Protocol):
    name: str

    def fit(
        self,
        programs: Sequence[Program],
        labels: Scores,
        tasks: Sequence[str],
        validation: Measured | None = None,
    ) -> Self:
        """Learn from measured programs; `tasks` names the task of each.

        A model that stops early does so by `validation`; the others take no notice of it. It must
        not be what the model is tested on.
        """

    def predict(self, programs: Sequence[Program]) -> Scores:
        """One score per program."""

    def save(self) -> bytes:
        """The fitted model."""

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The model that `save` returned."""


def stack(programs: Sequence[Program]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All rows of all programs, and the row where each program starts."""
    sizes = np.array([len(p) for p in programs])
    if (sizes == 0).any():
        raise ValueError("a program without rows")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.concatenate(programs).astype(np.float32, copy=False), starts
