"""Selective synaptic plasticity: a penalty on changing the weights that earlier trainings need.

    L'(w) = L(w) + strength * sum_i b_i (w_i - w_i^b)^2

`w^b` are the weights after the earlier trainings, `b_i` is the importance of weight i for them:

    squared  b_i = mean over lists d of (dL(d, w) / dw_i)^2, the loss of each single list
             (UniCoMo, ICCD 2024; the diagonal of the empirical Fisher information, Kirkpatrick
             et al., PNAS 2017)
    output   b_i = mean over lists of |d sum f(x)^2 / dw_i| (MAS; Aljundi et al., ECCV 2018)
    path     b_i = (sum over steps of -gradient_i * step_i) / ((total change of w_i)^2 + 0.1), the
             contribution of weight i to the loss (SI; Zenke et al., ICML 2017)

A list loss has no gradient of a single program: a sample is the list of one task. Importances are
summed over trainings and divided by their mean when used, so that `strength` has a similar effect
for all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._attention_training import Kept, Lists, NamedArrays, Training

METHODS = ("squared", "output", "path")
#: Bound of the stiffness: the weight does not move, and the gradient fits single precision.
_STIFFEST = 1e30
#: The damping of `path` in the code of Zenke et al.
_DAMPING = 0.1


@dataclass(frozen=True)
class Plasticity:
    """The weights after the last training, and the total importance of each."""

    anchor: Mapping[str, NDArray[Any]]
    importance: Mapping[str, NDArray[Any]]

    def kept(self, strength: float) -> Kept | None:
        """The penalty on moving away from the anchor; None if all importances are zero."""
        count = sum(b.size for b in self.importance.values())
        mean = sum(float(b.sum(dtype=np.float64)) for b in self.importance.values()) / count
        if strength <= 0 or not mean > 0:
            return None
        stiffness = {
            name: np.minimum(strength / mean * b.astype(float), _STIFFEST).astype(np.float32)
            for name, b in self.importance.items()
        }
        return Kept(self.anchor, stiffness)

    def arrays(self) -> NamedArrays:
        """The arrays in a saved file."""
        return {f"anchor.{name}": np.asarray(value) for name, value in self.anchor.items()} | {
            f"importance.{name}": np.asarray(value) for name, value in self.importance.items()
        }

    @classmethod
    def of_arrays(cls, arrays: NamedArrays) -> Plasticity | None:
        """The inverse of `arrays`, or None if there is none. Raises ValueError."""
        parts: dict[str, NamedArrays] = {"anchor": {}, "importance": {}}
        for name, value in arrays.items():
            part, _, of = name.partition(".")
            if part in parts:
                parts[part][of] = value
        shapes = [{name: v.shape for name, v in part.items()} for part in parts.values()]
        if shapes[0] != shapes[1]:
            raise ValueError("importances of other weights")
        return cls(**parts) if shapes[0] else None


def after(
    training: Training,
    lists: Lists,
    before: Plasticity | None,
    method: str,
    path: NamedArrays | None = None,
    start: NamedArrays | None = None,
) -> Plasticity:
    """The plasticity after training on these lists.

    `training` has the resulting weights. The method `path` needs the accumulated `Training.path`
    and the initial weights `start`; it raises ValueError without them.
    """
    weights = training.weights()
    if method == "path":
        if path is None or start is None:
            raise ValueError("the path of the weights was not recorded")
        importance = _by_path(path, start, weights)
    elif method == "output":
        importance = _mean(np.abs, training.gradients_of_output(lists), len(lists))
    else:
        importance = _mean(np.square, training.gradients_of_loss(lists), len(lists))
    if before is not None:
        importance = {name: b + before.importance[name] for name, b in importance.items()}
    return Plasticity({name: weights[name] for name in importance}, importance)


def _mean(
    measure: Callable[[NDArray[Any]], NDArray[Any]], gradients: Iterable[NamedArrays], count: int
) -> NamedArrays:
    total: NamedArrays = {}
    for each in gradients:
        for name, gradient in each.items():
            total[name] = total.get(name, np.zeros(gradient.shape)) + measure(gradient)
    return {name: (value / count).astype(np.float32) for name, value in total.items()}


def _by_path(path: NamedArrays, start: NamedArrays, weights: NamedArrays) -> NamedArrays:
    return {
        name: np.maximum(
            way / ((weights[name] - start[name]).astype(np.float64) ** 2 + _DAMPING), 0.0
        ).astype(np.float32)
        for name, way in path.items()
    }
