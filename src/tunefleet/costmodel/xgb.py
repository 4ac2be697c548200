"""Gradient-boosted trees on per-store features, summed over the stores of a program.

The score of a program is the sum of its stores' scores; the loss is the squared error of that sum
against the label, weighted by the label so that fast programs count more ("pack sum" of Ansor,
OSDI 2020, section 5.2). Parameters are TenSet's where they do not cost time: fewer rounds at the
same learning rate lose nothing at the thousands of records one job has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import Program, Scores

_MAGIC = b"tunefleet-xgb/1\n"


class XGBModel:
    name = "xgb"

    def __init__(self, rounds: int = 60, max_depth: int = 6, threads: int = 1) -> None:
        self.rounds = rounds
        self.max_depth = max_depth
        self.threads = threads
        self._booster: Any = None

    def fit(self, programs: Sequence[Program], labels: Scores, tasks: Sequence[str]) -> Self:
        """Fit from nothing; `tasks` is not used, labels are already relative to their task."""
        import xgboost

        if len(programs) != len(labels) or not programs:
            raise ValueError(f"{len(programs)} programs and {len(labels)} labels")
        rows, starts = _stack(programs)
        counts = np.diff(np.append(starts, len(rows)))
        weights = np.repeat(0.1 + np.asarray(labels), counts)
        target = np.repeat(np.asarray(labels), counts)

        def pack_sum(margin: NDArray[Any], _: Any) -> tuple[NDArray[Any], NDArray[Any]]:
            total = np.repeat(np.add.reduceat(margin, starts), counts)
            return (total - target) * weights, weights

        data = xgboost.QuantileDMatrix(rows, nthread=self.threads, max_bin=64)
        self._booster = xgboost.train(
            {
                "max_depth": self.max_depth,
                "eta": 0.2,
                "gamma": 0.001,
                "min_child_weight": 0,
                "tree_method": "hist",
                "max_bin": 64,
                "base_score": 0.0,
                "seed": 43,
                "nthread": self.threads,
                "verbosity": 0,
                "disable_default_eval_metric": True,
            },
            data,
            num_boost_round=self.rounds,
            obj=pack_sum,
        )
        return self

    def predict(self, programs: Sequence[Program]) -> Scores:
        if self._booster is None:
            raise ValueError("predict before fit")
        if not programs:
            return np.zeros(0)
        rows, starts = _stack(programs)
        if rows.shape[1] != self._booster.num_features():
            raise ValueError(
                f"features have {rows.shape[1]} columns, the model {self._booster.num_features()}"
            )
        margin = self._booster.inplace_predict(rows, predict_type="margin")
        return np.add.reduceat(margin.astype(np.float64), starts)

    def save(self) -> bytes:
        if self._booster is None:
            raise ValueError("save before fit")
        return _MAGIC + bytes(self._booster.save_raw("ubj"))

    @classmethod
    def load(cls, data: bytes) -> Self:
        import xgboost

        if not data.startswith(_MAGIC):
            raise ValueError("not an XGBoost cost model of this version")
        model = cls()
        model._booster = xgboost.Booster({"nthread": model.threads})
        model._booster.load_model(bytearray(data[len(_MAGIC) :]))
        return model


def _stack(programs: Sequence[Program]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All stores of all programs, and the row where each program starts."""
    sizes = np.array([len(p) for p in programs])
    if (sizes == 0).any():
        raise ValueError("a program without stores")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.concatenate(programs).astype(np.float32), starts
