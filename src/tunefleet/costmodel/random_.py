"""Random scores: the baseline that every model is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from tunefleet.costmodel._base import CostModel, InputForm, LabelledPrograms, ProgramRows, Scores


class RandomModel(CostModel):
    name = "random"
    input_form = InputForm.ROWS

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._generator = np.random.default_rng(seed)

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        return self

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        return self._generator.random(len(programs))

    def save(self) -> bytes:
        return f"random/{self.seed}".encode()

    @classmethod
    def load(cls, data: bytes) -> Self:
        kind, _, seed = data.partition(b"/")
        if kind != b"random" or not seed.isdigit():
            raise ValueError("not a random cost model")
        return cls(int(seed))
