"""Gradient-boosted trees on the rows of a program, summed over them.

Parameters are TenSet's, with fewer rounds at the same learning rate: with the thousands of records
of one job this loses no accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import NDArray

from tunefleet.costmodel._base import CostModel, InputForm, LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._forest import loaded_trees
from tunefleet.costmodel._pack_sum import PackSum, predicted

_MAGIC = b"tunefleet-xgb/1\n"


class XGBModel(CostModel):
    name = "xgb"
    input_form = InputForm.FLAT
    learns_residual = True

    def __init__(self, rounds: int = 60, max_depth: int = 6, threads: int = 1) -> None:
        self.rounds = rounds
        self.max_depth = max_depth
        self.threads = threads
        self._booster: Any = None

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Fit from scratch; `tasks` is not used, since labels are relative to their task."""
        return self._fit(PackSum.of(programs, labels))

    def fit_residual(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        offset: Scores,
    ) -> Self:
        return self._fit(PackSum.of(programs, labels, offset))

    def _fit(self, loss: PackSum) -> Self:
        import xgboost

        def pack_sum(margin: NDArray[Any], _: Any) -> tuple[NDArray[Any], NDArray[Any]]:
            return loss.gradient(margin)

        data = xgboost.QuantileDMatrix(loss.rows, nthread=self.threads, max_bin=64)
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

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        if self._booster is None:
            raise ValueError("predict before fit")
        return predicted(
            programs,
            self._booster.num_features(),
            lambda rows: self._booster.inplace_predict(rows, predict_type="margin"),
        )

    def save(self) -> bytes:
        if self._booster is None:
            raise ValueError("save before fit")
        return _MAGIC + bytes(self._booster.save_raw("ubj"))

    @classmethod
    def load(cls, data: bytes) -> Self:
        if not data.startswith(_MAGIC):
            raise ValueError("not an XGBoost cost model of this version")
        model = cls()
        model._booster = loaded_trees(data[len(_MAGIC) :])
        return model
