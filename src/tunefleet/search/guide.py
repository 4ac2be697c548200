"""Scores for a search: a pretrained cost model, and a model of the residual trained in the job.

`score = pretrained(program) + residual(program)`. The weights of the pretrained model never change,
so nothing is forgotten; boosted trees learn the residual of the labels from the job's own trials
(TenSet's online local residual). Both use the feature schema `tilings/1`. Tasks of a kind that the
pretrained model was not trained on are scored by the trees alone, which then learn the full labels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import MODELS, CostModel, InputForm
from tunefleet.features.tilings import Array, Encoded, flatten


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A saved model: its kind in `MODELS` and its file. Only these are sent to a worker: a pipe
    holds 64 KiB, and a worker killed while it reads more would leave the sender waiting."""

    kind: str
    path: str

    def load(self) -> CostModel:
        """The model, shared by all selections of a process: predictions do not change it."""
        return _loaded(self.kind, self.path)


@lru_cache(maxsize=2)
def _loaded(kind: str, path: str) -> CostModel:
    # Files of the registry are named by their content.
    return MODELS[kind].load(Path(path).read_bytes())


@dataclass(frozen=True)
class Guide:
    """At least one of the two models."""

    pretrained: CostModel | None
    learnt: CostModel | None

    @classmethod
    def load(cls, pretrained: Pretrained | None, kind: str, learnt: bytes) -> Guide | None:
        """`learnt` are the bytes returned by `learn`, or empty. None if there is no model."""
        base = pretrained.load() if pretrained else None
        own = MODELS[kind].load(learnt) if learnt else None
        return cls(base, own) if base or own else None

    def predict(self, lists: Sequence[Encoded]) -> list[NDArray[np.float64]]:
        """The scores of each list: programs of one sketch, of one task."""
        total = [np.zeros(len(programs)) for programs in lists]
        for model in (self.pretrained, self.learnt):
            if model is not None:
                for own, scores in zip(total, _scores(model, lists), strict=True):
                    own += scores
        return total

    @classmethod
    def learn(
        cls,
        pretrained: Pretrained | None,
        kind: str,
        programs: Sequence[Array],
        labels: NDArray[np.float64],
        tasks: Sequence[str],
        steered: Collection[str],
    ) -> bytes:
        """Train a model of `kind` on the job's own trials: on the residuals for tasks that the
        pretrained model covers."""
        model = MODELS[kind]()
        inputs = _as_taken(model, programs)
        rows = [row for row, task in enumerate(tasks) if task in steered]
        if pretrained and rows and model.learns_residual:
            base = pretrained.load()
            offset = np.zeros(len(programs))
            offset[rows] = base.predict(_as_taken(base, [programs[row] for row in rows]))
            return model.fit_residual(inputs, labels, tasks, offset).save()
        return model.fit(inputs, labels, tasks).save()


def _scores(model: CostModel, lists: Sequence[Encoded]) -> list[NDArray[np.float64]]:
    if model.input_form is InputForm.ROWS:
        return model.predict_lists([programs.distinct for programs in lists])
    rows = [row for programs in lists for row in programs.rows()]
    ends = np.cumsum([len(programs) for programs in lists])
    return np.split(model.predict(_as_taken(model, rows)), ends[:-1])


def _as_taken(model: CostModel, programs: Sequence[Array]) -> Sequence[Array]:
    return flatten(programs) if model.input_form is InputForm.FLAT else programs
