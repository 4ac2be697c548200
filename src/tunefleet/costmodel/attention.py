"""Multi-head attention over the rows of a program, trained to rank the programs of each task.

The network is in `_attention_net.py`. The loss is a ranking loss of each task's list
(`_ranking_loss.py`) plus `error_weight` times the squared error of the predicted label, weighted
towards fast programs. Held-out programs calibrate the scores to labels (`_calibration.py`).
PyTorch trains the network, optionally on a GPU; NumPy predicts, so that a search needs no PyTorch.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel import metrics
from tunefleet.costmodel._attention_net import (
    are_weights,
    attention,
    embed,
    forward,
    initial,
    intervals,
    narrowed,
)
from tunefleet.costmodel._attention_training import Kept, Training, TrainingParameters
from tunefleet.costmodel._base import CostModel, InputForm, LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._calibration import UNCHANGED, calibrated, is_line, line_through
from tunefleet.costmodel._lists import batches, groups_of, numbers_of, pairs_ordered, set_aside
from tunefleet.costmodel._ranking_loss import LOSSES
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._tensors import FORMAT, dumps, loads
from tunefleet.costmodel._torch import one_thread, torch

_FORMAT = "tunefleet-attention/1"
#: The array in files that is not a weight of the network; models without it are not calibrated.
_LINE = "calibration"
#: Records of one task in a batch, and tasks (or parts of one) in it.
LIST, _LISTS = 64, 8
#: Programs per prediction batch: their rows fit into the caches.
_AT_ONCE = 128
#: Rows and programs embedded at once.
_ROWS, _PROGRAMS = 2048, 8192
#: Number of cached embedded tables, some hundred kilobytes each.
_TABLES = 64

#: Defaults of continued training, measured with 50 to 200 records (benchmarks/transfer.py,
#: few-shot).
_TUNED_EPOCHS, _TUNED_RATE = 30, 5e-4

NamedArrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Epoch:
    """The results of an epoch on the validation part, without calibration."""

    pca: float
    rmse: float


class AttentionModel(CostModel):
    name = "attention"
    input_form = InputForm.ROWS
    learns_on = True

    def __init__(
        self,
        hidden: int = 128,
        heads: int = 2,
        layers: int = 1,
        bins: int = 16,
        epochs: int = 50,
        patience: int = 30,
        learning_rate: float = 2e-3,
        dropout: float = 0.1,
        loss: str = "gap",
        error_weight: float = 10.0,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        if min(hidden, heads, layers, epochs) < 1 or loss not in LOSSES:
            raise ValueError(f"{layers} layers, {heads} heads of {hidden} numbers, loss {loss!r}")
        if hidden % heads:
            raise ValueError(f"{hidden} is not a multiple of its {heads} heads")
        self.hidden = hidden
        self.heads = heads
        self.layers = layers
        self.bins = bins
        self.epochs = epochs
        self.patience = patience
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.loss = loss
        self.error_weight = error_weight
        self.seed = seed
        self.device = device
        #: Of the last `fit` or `partial_fit`.
        self.history: tuple[Epoch, ...] = ()
        self.weights: NamedArrays = {}
        #: Whether training records the path for `_plasticity`, the path, and the initial weights.
        self.follows_path = False
        self.path: NamedArrays | None = None
        self.path_start: NamedArrays = {}
        self._line = UNCHANGED
        #: Embedded tables by weights and rows, with the weights and a reference to the rows.
        self._tables: dict[tuple[int, int], tuple[NamedArrays, Any, NDArray[np.float32]]] = {}

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Fit from scratch; keeps the epoch that ranks `validation` (or a held-out tenth) best.

        The learning rate decays to zero at the last epoch, where the gain is largest: with little
        patience training stops before.

        Raises SetupError without torch.
        """
        given = LabelledPrograms(programs, np.asarray(labels, float), tasks)
        generator = np.random.default_rng(self.seed)
        train, held = (given, validation) if validation else set_aside(given, generator)
        data = DistinctRows.of(train.programs)
        start = initial(intervals(data.distinct, self.bins), self.hidden, self.layers, generator)
        self._train(start, data, train, held, generator, self.epochs, self.learning_rate)
        return self

    def partial_fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
        *,
        epochs: int = 10,
        learning_rate: float = 2e-4,
        keep: Kept | None = None,
    ) -> Self:
        """Fine-tune the current weights on the records of a new device or task.

        Without `validation` the last epoch and the old calibration are kept: there may be too few
        records for a held-out part. `keep` is a penalty against forgetting.
        """
        if not self.weights:
            raise ValueError("partial_fit before fit")
        given = LabelledPrograms(programs, np.asarray(labels, float), tasks)
        self.check_columns(given.programs)
        generator = np.random.default_rng(self.seed)
        data = DistinctRows.of(given.programs)
        self._train(self.weights, data, given, validation, generator, epochs, learning_rate, keep)
        return self

    def training_parameters(self, dropout: float | None = None) -> TrainingParameters:
        """The parameters used in training."""
        dropped = self.dropout if dropout is None else dropout
        return TrainingParameters(self.heads, self.loss, self.error_weight, dropped, self.device)

    def learned_on(
        self,
        given: LabelledPrograms,
        validation: LabelledPrograms,
        *,
        seed: int,
        device: str,
        epochs: int | None = None,
    ) -> Self:
        """A copy fine-tuned by `partial_fit` with the same parameters."""
        model = self.load(self.save())
        model.seed, model.device = seed, device
        model.epochs, model.learning_rate = epochs or _TUNED_EPOCHS, _TUNED_RATE
        return model.partial_fit(
            given.programs,
            given.labels,
            given.tasks,
            validation,
            epochs=model.epochs,
            learning_rate=model.learning_rate,
        )

    def _train(
        self,
        start: NamedArrays,
        data: DistinctRows,
        train: LabelledPrograms,
        held: LabelledPrograms | None,
        generator: np.random.Generator,
        epochs: int,
        learning_rate: float,
        keep: Kept | None = None,
    ) -> None:
        with one_thread():
            torch().manual_seed(self.seed)
            training = Training(
                self.training_parameters(), start, data, train.labels, learning_rate, keep
            )
            if self.follows_path:
                training.follow_path()
            groups = groups_of(train.tasks)
            steps = epochs * sum(1 for _ in batches(groups, np.random.default_rng(), LIST, _LISTS))
            training.schedule(steps)
            self.weights = start
            if held is not None:
                self._line = UNCHANGED
            history: list[Epoch] = []
            best, since = start, 0
            for _ in range(epochs):
                for lists in batches(groups, generator, LIST, _LISTS):
                    training.step(lists)
                now = training.weights()
                if held is None:
                    best = now
                    continue
                self.weights = now
                epoch = self._epoch(held)
                since += 1
                # The last of equals: with one record per task, all epochs rank equally.
                if epoch.pca >= max((e.pca for e in history), default=-1.0):
                    best, since = now, 0
                history.append(epoch)
                if since > self.patience:
                    break
            self.weights, self.history = best, tuple(history)
            self.path, self.path_start = training.path, start
            if held is not None:
                self._line = line_through(self.predict(held.programs), held.labels)

    def _epoch(self, held: LabelledPrograms) -> Epoch:
        scores = self.predict(held.programs)
        pca = pairs_ordered(held.labels, scores, numbers_of(held.tasks))
        return Epoch(pca, metrics.rmse(held.labels, scores))

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        """Predicted labels, in (0, 1)."""
        if not self.weights:
            raise ValueError("predict before fit")
        if len(programs) == 0:
            return np.zeros(0)
        self.check_columns(programs)
        data = DistinctRows.of(programs)
        parts = []
        for start in range(0, len(programs), _PROGRAMS):
            rows = data.padded(np.arange(start, min(start + _PROGRAMS, len(programs))))
            inside = None if rows.inside.all() else rows.inside.astype(np.float32)
            parts.append(self._scores(self._embedded(rows.distinct), rows.local, inside))
        return np.concatenate(parts)

    def predict_distinct(self, distinct: Sequence[ProgramRows], local: NDArray[np.int64]) -> Scores:
        """Fastest if few columns vary within a table: each table is embedded once."""
        if not self.weights:
            raise ValueError("predict before fit")
        for rows in distinct:
            self.check_columns([rows])
        if len(local) == 0:
            return np.zeros(0)
        embedded = [self._table(rows) for rows in distinct if len(rows)]
        return self._scores(np.concatenate(embedded), local)

    def attention(self, program: ProgramRows) -> NDArray[np.float32]:
        """Attention weights of the first layer between a program's rows: (heads, rows, rows), whose
        last axis sums to 1."""
        if not self.weights:
            raise ValueError("attention before fit")
        self.check_columns([program])
        seen: NDArray[np.float32] = attention(np, self.heads, embed(np, self.weights, program))
        return seen

    def _table(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`_embedded`, cached while `rows` exists: a search uses one table repeatedly, and its
        embedding took a tenth of the time of selections."""
        key, tables = (id(self.weights), id(rows)), self._tables
        if key not in tables:
            if len(tables) == _TABLES:
                del tables[next(iter(tables))]
            gone = weakref.ref(rows, lambda _: tables.pop(key, None))
            tables[key] = (self.weights, gone, self._embedded(rows))
        return tables[key][2]

    def _embedded(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        parts = [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
        return np.concatenate([embed(np, *narrowed(self.weights, part)) for part in parts])

    def _scores(
        self,
        embedded: NDArray[np.float32],
        local: NDArray[np.int64],
        inside: NDArray[np.float32] | None = None,
    ) -> Scores:
        logits = np.empty(len(local))
        for start in range(0, len(local), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            there = None if inside is None else inside[part]
            logits[part] = forward(np, self.weights, self.heads, embedded, local[part], there)
        return calibrated(1.0 / (1.0 + np.exp(-logits)), self._line)

    def check_columns(self, programs: Sequence[ProgramRows]) -> None:
        """Raises ValueError for programs of another schema."""
        columns, known = programs[0].shape[1], len(self.weights["mean"])
        if columns != known:
            raise ValueError(f"features have {columns} columns, the model {known}")

    def save(self) -> bytes:
        if not self.weights:
            raise ValueError("save before fit")
        settings = {"hidden": self.hidden, "heads": self.heads, "layers": self.layers,
                    "bins": self.bins, "loss": self.loss, "error_weight": self.error_weight,
                    "seed": self.seed}  # fmt: skip
        line = {_LINE: self._line} if self._line.size else {}
        return dumps(self.weights | line, {FORMAT: _FORMAT, "settings": json.dumps(settings)})

    @classmethod
    def load(cls, data: bytes) -> Self:
        arrays, header = loads(data, _FORMAT)
        line = arrays.pop(_LINE, UNCHANGED)
        try:
            model = cls(**json.loads(header["settings"]))
            fits = are_weights(arrays, model.hidden, model.layers) and is_line(line)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError("not an attention cost model") from error
        if not fits:
            raise ValueError("not an attention cost model: arrays of another network")
        model.weights, model._line = arrays, line
        return model
