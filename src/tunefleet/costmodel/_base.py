"""The CostModel protocol.

The interface follows scikit-learn: the constructor stores its parameters, `fit` trains from
scratch, `predict` scores. A program is an array (rows, columns) of one feature schema: a row per
store, a row per primitive, or a single row. A label is `best latency / latency` within its task and
device, in (0, 1], 0 for a failed trial. A score is higher for a faster program, and comparable
within a task only.

A kind of model declares its input form (`input_form`) and its capabilities: training on the
residual of another model (`learns_residual`) and continued training (`learns_on`). Callers check
these attributes, not the class.

**Threads.** A model is used by one thread. **Errors.** `predict` before `fit` and programs of
another schema raise ValueError. **State.** `save` returns bytes without pickle; `load` returns an
equal model, and raises ValueError for other bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

ProgramRows = NDArray[np.float32]
Scores = NDArray[np.float64]
#: Programs of equal length: tables of rows, and the indices (programs, length) of each program's
#: rows in their concatenation.
Distinct = tuple[Sequence[ProgramRows], NDArray[np.int64]]


class InputForm(StrEnum):
    """The form in which a kind of model takes programs with ordered rows."""

    #: A row for each primitive.
    ROWS = "rows"
    #: All rows as one: a model that sums over rows would lose their order.
    FLAT = "flat"


@dataclass(frozen=True)
class LabelledPrograms:
    """Programs with labels, task names, and device names if known."""

    programs: Sequence[ProgramRows]
    labels: Scores
    tasks: Sequence[str]
    devices: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.devices and len(self.devices) != len(self.tasks):
            raise ValueError(f"{len(self.tasks)} programs and {len(self.devices)} devices")
        if not len(self.programs) == len(self.labels) == len(self.tasks) > 0:
            raise ValueError(
                f"{len(self.programs)} programs, {len(self.labels)} labels and "
                f"{len(self.tasks)} tasks"
            )

    def take(self, numbers: NDArray[np.int64]) -> LabelledPrograms:
        return LabelledPrograms(
            [self.programs[i] for i in numbers],
            self.labels[numbers],
            [self.tasks[i] for i in numbers],
            [self.devices[i] for i in numbers] if self.devices else (),
        )


class CostModel(Protocol):
    name: ClassVar[str]
    input_form: ClassVar[InputForm]
    #: Whether `fit_residual` is supported.
    learns_residual: ClassVar[bool] = False
    #: Whether `learned_on` is supported.
    learns_on: ClassVar[bool] = False

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Train on measured programs; `tasks` names the task of each.

        `validation` is used for early stopping, by models that support it. It must not overlap with
        the test data.
        """

    @property
    def remembered(self) -> Sequence[LabelledPrograms]:
        """Held-out programs of each training, one entry per training: ranking them later measures
        what was forgotten. Empty for kinds that keep none."""
        return ()

    def learn(self, given: LabelledPrograms, validation: LabelledPrograms | None = None) -> Self:
        """`fit`, with device names for models that use them."""
        return self.fit(given.programs, given.labels, given.tasks, validation)

    def fit_residual(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        offset: Scores,
    ) -> Self:
        """Train from scratch on the residual of `offset`, the scores of another model.

        Raises ValueError if the kind does not support it.
        """
        raise ValueError(f"{self.name} models cannot learn a residual")

    def learned_on(
        self,
        given: LabelledPrograms,
        validation: LabelledPrograms,
        *,
        seed: int,
        device: str,
        epochs: int | None = None,
    ) -> Self:
        """A copy of this model trained further on more programs; this one is not modified.

        Raises ValueError if the kind does not support it.
        """
        raise ValueError(f"{self.name} models can only be trained from scratch")

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        """One score per program."""

    def predict_distinct(self, distinct: Sequence[ProgramRows], local: NDArray[np.int64]) -> Scores:
        """`predict` for programs of a `Distinct`, whose tables must not be modified."""
        return self.predict(list(np.concatenate(distinct)[local]))

    def predict_lists(self, lists: Sequence[Distinct]) -> list[Scores]:
        """`predict_distinct` of each; no list's scores depend on the others. For models whose calls
        cost more than their programs."""
        return [self.predict_distinct(*each) for each in lists]

    def save(self) -> bytes:
        """The fitted model."""

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The model that `save` returned."""


def stack(programs: Sequence[ProgramRows]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All rows of all programs, and the first row of each program."""
    sizes = np.array([len(p) for p in programs])
    if (sizes == 0).any():
        raise ValueError("a program without rows")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.concatenate(programs).astype(np.float32, copy=False), starts
