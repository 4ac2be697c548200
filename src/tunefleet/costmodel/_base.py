"""The CostModel protocol.

scikit-learn manners: the constructor stores its parameters, `fit` learns from nothing, `predict`
scores. A program is an array (rows, columns) of one feature schema: a row for each store, for each
primitive, or one row in all. A label is `best latency / latency` within its task and device, in
(0, 1], 0 for a failed trial; a score is higher for a faster program and comparable within a task
only.

A kind of model says in what form it takes programs (`input_form`), and what it can do beyond this:
learn what another model leaves (`learns_residual`), learn more from where it is (`learns_on`).
Callers ask that, and no caller asks what class a model is of.

**Threads.** A model is used by one thread. **Errors.** `predict` before `fit` and programs of
another schema raise ValueError. **State.** `save` returns bytes without pickle that `load`
turns into an equal model; loading foreign bytes raises ValueError.
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


class InputForm(StrEnum):
    """In what form a kind of model takes programs whose rows stand in an order."""

    #: A row for each primitive.
    ROWS = "rows"
    #: All of them as one row: a model that sums over rows would lose their order.
    FLAT = "flat"


@dataclass(frozen=True)
class LabelledPrograms:
    """Programs with their labels, the names of their tasks, and of their devices where told."""

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
    #: Whether `fit_residual` learns what is to be added to the scores of another model.
    learns_residual: ClassVar[bool] = False
    #: Whether `learned_on` gives a model that has learned more.
    learns_on: ClassVar[bool] = False

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Learn from measured programs; `tasks` names the task of each.

        A model that stops early does so by `validation`; the others take no notice of it. It must
        not be what the model is tested on.
        """

    @property
    def remembered(self) -> Sequence[LabelledPrograms]:
        """Programs of each thing that was learned, which did not train it: how well they are
        ranked later tells what was forgotten. None of a kind that keeps none."""
        return ()

    def learn(self, given: LabelledPrograms, validation: LabelledPrograms | None = None) -> Self:
        """`fit`, and a model that tells devices apart is told of them."""
        return self.fit(given.programs, given.labels, given.tasks, validation)

    def fit_residual(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        offset: Scores,
    ) -> Self:
        """Learn from nothing what is to be added to `offset`, the scores of another model.

        Raises ValueError where the kind does not learn residuals.
        """
        raise ValueError(f"{self.name} models learn no residual")

    def learned_on(
        self,
        given: LabelledPrograms,
        validation: LabelledPrograms,
        *,
        seed: int,
        device: str,
        epochs: int | None = None,
    ) -> Self:
        """A model that went on from this one with more programs; this one stays as it is.

        Raises ValueError where the kind learns anew only.
        """
        raise ValueError(f"{self.name} models learn anew only")

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        """One score per program."""

    def predict_distinct(self, distinct: Sequence[ProgramRows], local: NDArray[np.int64]) -> Scores:
        """`predict` of programs of one length, `local` (programs, length) numbers of rows.

        They number `distinct`, tables of rows that follow each other and must not change.
        """
        return self.predict(list(np.concatenate(distinct)[local]))

    def save(self) -> bytes:
        """The fitted model."""

    @classmethod
    def load(cls, data: bytes) -> Self:
        """The model that `save` returned."""


def stack(programs: Sequence[ProgramRows]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All rows of all programs, and the row where each program starts."""
    sizes = np.array([len(p) for p in programs])
    if (sizes == 0).any():
        raise ValueError("a program without rows")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.concatenate(programs).astype(np.float32, copy=False), starts
