"""Training steps of the attention network in PyTorch, with an optional penalty on changes.

The loss of a batch is its ranking loss plus the weighted squared error of the predicted labels. A
`Kept` adds the quadratic penalty of `_plasticity.py`, by its gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._attention_net import FIXED, embed, forward
from tunefleet.costmodel._base import Scores
from tunefleet.costmodel._ranking_loss import ranking_loss
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._torch import torch

if TYPE_CHECKING:
    from torch import Tensor

NamedArrays = dict[str, NDArray[Any]]
#: Indices of the programs of one task each.
Lists = list[NDArray[np.int64]]

_LARGEST_GRADIENT = 0.5


@dataclass(frozen=True)
class TrainingParameters:
    """The model parameters used in training."""

    heads: int
    loss: str
    error_weight: float
    dropout: float
    device: str


@dataclass(frozen=True)
class Kept:
    """Adds sum_i `stiffness_i` (w_i - `anchor_i`)^2 to the loss, by the name of each array."""

    anchor: Mapping[str, NDArray[Any]]
    stiffness: Mapping[str, NDArray[Any]]


class Training:
    """Weights on the training device, and their optimiser."""

    def __init__(
        self,
        parameters: TrainingParameters,
        start: NamedArrays,
        data: DistinctRows,
        labels: Scores,
        learning_rate: float,
        keep: Kept | None = None,
    ) -> None:
        self._parameters = parameters
        self._data = data
        self._labels = labels.astype(np.float32)
        self._weights = {name: self._tensor(value.copy()) for name, value in start.items()}
        self._learnt = {
            name: w.requires_grad_() for name, w in self._weights.items() if name not in FIXED
        }
        self._rate = learning_rate
        self._optimiser = torch().optim.Adam(
            self._learnt.values(), lr=learning_rate, weight_decay=1e-6
        )
        self._schedule: Any = None
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}
        if keep is not None:
            self._kept = {
                name: (self._tensor(keep.stiffness[name]), self._tensor(keep.anchor[name]))
                for name in self._learnt
            }
        #: The loss reduction attributed to each weight's steps (`_plasticity.by_path`).
        self.path: NamedArrays | None = None

    def follow_path(self) -> None:
        """Accumulate `path` from now on."""
        self.path = {name: np.zeros(w.shape, np.float64) for name, w in self._learnt.items()}

    def schedule(self, steps: int) -> None:
        total = steps + 1
        # PyTorch divides by the number of warm-up steps minus one.
        rising = 0.1 if total != 10 else 0.11
        self._schedule = torch().optim.lr_scheduler.OneCycleLR(
            self._optimiser, self._rate, total_steps=total, pct_start=rising
        )

    def step(self, lists: Lists) -> None:
        self._optimiser.zero_grad()
        _backward(self._loss(lists))
        before = None if self.path is None else self._with_gradients()
        for name, (stiffness, anchor) in self._kept.items():
            weight: Any = self._learnt[name]
            weight.grad += 2.0 * stiffness * (weight.detach() - anchor)
        torch().nn.utils.clip_grad_norm_(self._learnt.values(), _LARGEST_GRADIENT)
        self._optimiser.step()
        self._schedule.step()
        if self.path is not None and before is not None:
            for name, (start, gradient) in before.items():
                self.path[name] += gradient * (start - _array(self._learnt[name]))

    def _with_gradients(self) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
        """Each weight with its gradient."""
        return {n: (_array(w).copy(), _array(w.grad).copy()) for n, w in self._learnt.items()}

    def _loss(self, lists: Lists) -> Tensor:
        chosen = np.concatenate(lists)
        mask = np.arange(max(map(len, lists))) < np.array([len(i) for i in lists])[:, None]
        place = np.zeros(mask.shape, np.int64)
        place[mask] = np.arange(len(chosen))
        logits = self._logits(chosen)
        labels = self._tensor(self._labels[chosen])
        of_list = self._tensor(place)
        loss = ranking_loss(
            self._parameters.loss, logits[of_list], labels[of_list], self._tensor(mask)
        )
        error = (torch().sigmoid(logits) - labels) ** 2
        total: Tensor = loss + self._parameters.error_weight * (error * (0.1 + labels)).mean()
        return total

    def _logits(self, chosen: NDArray[np.int64]) -> Tensor:
        rows = self._data.padded(chosen)
        logits: Tensor = forward(
            torch(),
            self._weights,
            self._parameters.heads,
            embed(torch(), self._weights, self._tensor(rows.distinct)),
            self._tensor(rows.local),
            self._tensor(rows.inside.astype(np.float32)),
            self._dropped,
        )
        return logits

    def _dropped(self, x: Any) -> Any:
        return torch().nn.functional.dropout(x, self._parameters.dropout)

    def gradients_of_loss(self, lists: Iterable[NDArray[np.int64]]) -> Iterator[NamedArrays]:
        """The gradient of the loss of each single list."""
        for each in lists:
            self._optimiser.zero_grad()
            _backward(self._loss([each]))
            yield self._gradients()

    def gradients_of_output(self, lists: Iterable[NDArray[np.int64]]) -> Iterator[NamedArrays]:
        """The gradient of the sum of squared scores of each list."""
        for each in lists:
            self._optimiser.zero_grad()
            _backward((self._logits(each) ** 2).sum())
            yield self._gradients()

    def _gradients(self) -> NamedArrays:
        return {name: _array(w.grad) for name, w in self._learnt.items()}

    def weights(self) -> NamedArrays:
        return {name: _array(w).copy() for name, w in self._weights.items()}

    def _tensor(self, value: NDArray[Any]) -> Tensor:
        tensor: Tensor = torch().from_numpy(value).to(self._parameters.device)
        return tensor


def _backward(loss: Any) -> None:
    loss.backward()


def _array(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
