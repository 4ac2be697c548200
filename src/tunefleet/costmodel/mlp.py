"""A small neural network: rows encoded one by one, summed over a program, ranked within a task.

TenSet's segment-sum MLP (two layers per row, their sum over the program, two residual layers, one
score) with its optimiser. The loss is the logistic loss of every pair of a task in the batch,
weighted by the difference of their labels; TenSet's LambdaRank treats the whole batch, of several
tasks, as one list. Distinct rows of a batch are encoded once: primitives repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import CostModel, InputForm, LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._lists import batches, groups_of, numbers_of, pairs_ordered, set_aside
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._tensors import FORMAT, dumps, loads
from tunefleet.costmodel._torch import one_thread, torch

if TYPE_CHECKING:
    from torch import Tensor

_FORMAT = "tunefleet-mlp/2"

#: Records of one task in a batch, and tasks (or parts of one) in it.
_LIST, _LISTS = 128, 4


class MLPModel(CostModel):
    name = "mlp"
    input_form = InputForm.ROWS

    def __init__(
        self, hidden: int = 128, epochs: int = 50, learning_rate: float = 7e-4, seed: int = 0
    ) -> None:
        if min(hidden, epochs) < 1:
            raise ValueError(f"{hidden} numbers, {epochs} epochs")
        self.hidden = hidden
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.seed = seed
        self._weights: dict[str, NDArray[np.float32]] = {}

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Fit from scratch; stops when the ranking of `validation` (or a held-out tenth) stops
        improving.

        Raises SetupError without torch.
        """
        if len(programs) != len(labels) or len(programs) == 0:
            raise ValueError(f"{len(programs)} programs and {len(labels)} labels")
        generator = np.random.default_rng(self.seed)
        given = LabelledPrograms(programs, np.asarray(labels, float), tasks)
        train, held = (given, validation) if validation else set_aside(given, generator)
        data = DistinctRows.of(train.programs)
        mean, scale = data.distinct.mean(axis=0), data.distinct.std(axis=0)
        start = _initial(data.distinct.shape[1], self.hidden, generator)
        start |= {"mean": mean, "scale": np.where(scale > 1e-6, scale, 1.0).astype(np.float32)}
        with one_thread():
            self._weights = self._trained(start, data, train, held, generator)
        return self

    def _trained(
        self,
        start: dict[str, NDArray[np.float32]],
        data: DistinctRows,
        train: LabelledPrograms,
        held: LabelledPrograms,
        generator: np.random.Generator,
    ) -> dict[str, NDArray[np.float32]]:
        """The weights of the epoch that ranks `held` best."""
        weights = {name: torch().from_numpy(value.copy()) for name, value in start.items()}
        learnt = [w.requires_grad_() for name, w in weights.items() if name[0] in "wb"]
        optimiser = torch().optim.Adam(learnt, lr=self.learning_rate, weight_decay=1e-6)
        groups = groups_of(train.tasks)
        numbers = numbers_of(held.tasks)
        best, best_pca, since = start, -1.0, 0
        for _ in range(self.epochs):
            for lists in batches(groups, generator, _LIST, _LISTS):
                self._step(weights, learnt, optimiser, data, train.labels, lists)
            now = {name: w.detach().numpy().copy() for name, w in weights.items()}
            pca = pairs_ordered(held.labels, _scores(now, held.programs), numbers)
            since += 1
            # The last of equals: with one record per task, all epochs rank equally.
            if pca >= best_pca:
                best, best_pca, since = now, pca, 0
            # TenSet's patience.
            if since > self.epochs // 6:
                break
        return best

    @staticmethod
    def _step(
        weights: dict[str, Tensor],
        learnt: list[Tensor],
        optimiser: Any,
        data: DistinctRows,
        labels: Scores,
        lists: list[NDArray[np.int64]],
    ) -> None:
        chosen = np.concatenate(lists)
        of_list = torch().from_numpy(np.repeat(np.arange(len(lists)), [len(i) for i in lists]))
        target = torch().from_numpy(labels[chosen].astype(np.float32))
        scores = _forward(weights, *data.of_programs(chosen))
        gap = torch().clamp(target[:, None] - target[None, :], min=0.0)
        gap = gap * (of_list[:, None] == of_list[None, :])
        behind = torch().nn.functional.softplus(scores[None, :] - scores[:, None])
        loss = (gap * behind).sum() / torch().clamp(gap.sum(), min=1e-6)
        optimiser.zero_grad()
        loss.backward()
        torch().nn.utils.clip_grad_norm_(learnt, 0.5)
        optimiser.step()

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        if not self._weights:
            raise ValueError("predict before fit")
        if len(programs) == 0:
            return np.zeros(0)
        columns, known = programs[0].shape[1], len(self._weights["mean"])
        if columns != known:
            raise ValueError(f"features have {columns} columns, the model {known}")
        with one_thread():
            return _scores(self._weights, programs)

    def save(self) -> bytes:
        if not self._weights:
            raise ValueError("save before fit")
        header = {FORMAT: _FORMAT, "hidden": str(self.hidden), "seed": str(self.seed)}
        return dumps(self._weights, header)

    @classmethod
    def load(cls, data: bytes) -> Self:
        try:
            weights, header = loads(data, _FORMAT)
            model = cls(hidden=int(header["hidden"]), seed=int(header["seed"]))
        except (ValueError, KeyError) as error:
            raise ValueError(f"not an MLP cost model: {error}") from error
        if not _has_shapes(weights, model.hidden):
            raise ValueError("not an MLP cost model: layers are missing or have another size")
        model._weights = weights
        return model


#: Layers: two per row, two residual ones per program, the score. (in, out) in hidden sizes; None
#: means the number of features, 0 means one.
_SHAPES: dict[str, tuple[int | None, int]] = {
    "w1": (None, 1), "w2": (1, 1), "w3": (1, 1), "w4": (1, 1), "w5": (1, 0),
}  # fmt: skip


def _has_shapes(weights: dict[str, NDArray[np.float32]], hidden: int) -> bool:
    """Whether these are the arrays of a model with `hidden` hidden units."""
    if "mean" not in weights:
        return False
    like = _initial(weights["mean"].size, hidden, np.random.default_rng(0))
    like |= {"mean": weights["mean"].ravel(), "scale": weights["mean"].ravel()}
    return {n: (w.shape, w.dtype) for n, w in weights.items()} == {
        n: (w.shape, np.dtype(np.float32)) for n, w in like.items()
    }


def _initial(
    columns: int, hidden: int, generator: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    """Weights uniform in +-1/sqrt(inputs), the default of PyTorch's linear layers."""
    weights = {}
    for name, (inputs, outputs) in _SHAPES.items():
        size = columns if inputs is None else hidden
        bound = 1.0 / np.sqrt(size)
        out = hidden if outputs else 1
        weights[name] = generator.uniform(-bound, bound, (size, out)).astype(np.float32)
        weights["b" + name[1:]] = generator.uniform(-bound, bound, out).astype(np.float32)
    return weights


def _forward(
    weights: dict[str, Tensor],
    distinct: NDArray[np.float32],
    local: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> Tensor:
    functional = torch().nn.functional
    x = (torch().from_numpy(distinct) - weights["mean"]) / weights["scale"]
    x = torch().relu(x @ weights["w1"] + weights["b1"])
    x = torch().relu(x @ weights["w2"] + weights["b2"])
    x = functional.embedding_bag(
        torch().from_numpy(local), x, torch().from_numpy(offsets), mode="sum"
    )
    x = x + torch().relu(x @ weights["w3"] + weights["b3"])
    x = x + torch().relu(x @ weights["w4"] + weights["b4"])
    scores: Tensor = (x @ weights["w5"] + weights["b5"])[:, 0]
    return scores


def _scores(weights: dict[str, NDArray[np.float32]], programs: Sequence[ProgramRows]) -> Scores:
    data = DistinctRows.of(programs)
    tensors = {name: torch().from_numpy(value) for name, value in weights.items()}
    with torch().no_grad():
        parts = [
            _forward(tensors, *data.of_programs(chosen)).numpy()
            for chosen in np.array_split(np.arange(len(programs)), len(programs) // 4096 + 1)
        ]
    return np.asarray(np.concatenate(parts), np.float64)
