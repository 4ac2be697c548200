"""The CostModel protocol.

scikit-learn manners: the constructor stores its parameters, `fit` learns from nothing, `predict`
scores. A program is an array (stores, columns) of one feature schema. A label is
`best latency / latency` within its task and device, in (0, 1], 0 for a failed trial; a score is
higher for a faster program and comparable within a task only.

**Threads.** A model is used by one thread. **Errors.** `predict` before `fit` and programs of
another schema raise ValueError. **State.** `save` returns bytes without pickle that `load`
turns into an equal model; loading foreign bytes raises ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

Program = NDArray[np.float32]
Scores = NDArray[np.float64]


class CostModel(Protocol):
    name: str

    def fit(self, programs: Sequence[Program], labels: Scores, tasks: Sequence[str]) -> Self:
        """Learn from measured programs; `tasks` names the task of each."""

    def predict(self, programs: Sequence[Program]) -> Scores:
        """One score per program."""

    def save(self) -> bytes:
        """The fitted model."""

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The model that `save` returned."""
