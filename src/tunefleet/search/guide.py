"""What steers a search: a pretrained cost model, and what this job has learnt beside it.

`score = pretrained(program) + residual(program)`: the weights of the pretrained model are never
changed, so nothing is forgotten; boosted trees learn from the job's own trials what is left of
their labels (TenSet's online local residual). Both see a program as schema `tilings/1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import MODELS, AttentionModel, CostModel, LGBMModel, XGBModel
from tunefleet.features.tilings import Array, Encoded, flatten

#: Boosted trees take a program as one row.
_TREES = (LGBMModel.name, XGBModel.name)


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A saved model: its kind in `MODELS` and its file. What goes to a worker stays small: a pipe
    holds 64 KiB, and one that is killed while it reads more leaves the sender waiting."""

    kind: str
    path: str

    def load(self) -> CostModel:
        return MODELS[self.kind].load(Path(self.path).read_bytes())


@dataclass(frozen=True)
class Guide:
    """At least one of the two."""

    pretrained: CostModel | None
    learnt: CostModel | None

    @classmethod
    def load(cls, pretrained: Pretrained | None, kind: str, learnt: bytes) -> Guide | None:
        """`learnt` are the bytes that `learn` returned, or none; None when there is nothing."""
        base = pretrained.load() if pretrained else None
        own = MODELS[kind].load(learnt) if learnt else None
        return cls(base, own) if base or own else None

    def predict(self, programs: Encoded) -> NDArray[np.float64]:
        total = np.zeros(len(programs))
        for model in (self.pretrained, self.learnt):
            if isinstance(model, AttentionModel):
                total += model.predict_distinct(*programs.distinct)
            elif model is not None:
                total += model.predict(_form(model.name, list(programs.rows())))
        return total

    @classmethod
    def learn(
        cls,
        pretrained: Pretrained | None,
        kind: str,
        programs: Sequence[Array],
        labels: NDArray[np.float64],
        tasks: Sequence[str],
    ) -> bytes:
        """What the job's own trials say beside the pretrained model: a model of `kind`."""
        model = MODELS[kind]()
        inputs = _form(kind, programs)
        if pretrained and isinstance(model, XGBModel):
            base = pretrained.load()
            offset = base.predict(_form(pretrained.kind, programs))
            return model.fit(inputs, labels, tasks, offset=offset).save()
        return model.fit(inputs, labels, tasks).save()


def _form(kind: str, programs: Sequence[Array]) -> Sequence[Array]:
    return flatten(programs) if kind in _TREES else programs
