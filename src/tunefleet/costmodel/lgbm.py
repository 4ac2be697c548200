"""LightGBM on the rows of a program, summed over them, with TenSet's parameters.

Source: Zheng et al., TenSet, NeurIPS 2021 Datasets & Benchmarks, `lgbm_model.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import CostModel, InputForm, LabelledPrograms, ProgramRows, Scores
from tunefleet.costmodel._pack_sum import PackSum, predicted

_MAGIC = b"tunefleet-lgbm/1\n"

#: TenSet's early stopping: rounds without a lower validation error.
_PATIENCE = 100


#: With few records LightGBM would drop every column, and then refuse to train.
_KEEP_COLUMNS = {"feature_pre_filter": False, "min_data_in_bin": 1, "verbosity": -1}


class LGBMModel(CostModel):
    name = "lgbm"
    input_form = InputForm.FLAT

    def __init__(
        self, rounds: int = 2000, leaves: int = 72, threads: int = 1, seed: int = 43
    ) -> None:
        self.rounds = rounds
        self.leaves = leaves
        self.threads = threads
        self.seed = seed
        self._booster: Any = None

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Fit from scratch; without `validation` all rounds are trained."""
        import lightgbm

        loss = PackSum.of(programs, labels)
        if not np.ptp(loss.rows, axis=0).any():
            return self._fit_constant(loss)

        def pack_sum(scores: NDArray[Any], _: Any) -> tuple[NDArray[Any], NDArray[Any]]:
            return loss.gradient(scores)

        data = lightgbm.Dataset(loss.rows, params=_KEEP_COLUMNS)
        stopping: dict[str, Any] = {}
        if validation is not None:
            held = PackSum.of(validation.programs, validation.labels)
            stopping = {
                "valid_sets": [lightgbm.Dataset(held.rows, reference=data, params=_KEEP_COLUMNS)],
                "feval": lambda scores, _: ("rmse", held.rmse(scores), False),
                "callbacks": [lightgbm.early_stopping(_PATIENCE, verbose=False)],
            }
        trained = lightgbm.train(
            {**self._parameters(), "objective": pack_sum}, data, self.rounds, **stopping
        )
        # Keep only what `load` would restore: with a custom objective the booster would otherwise
        # hold a reference to the training data.
        self._booster = lightgbm.Booster(model_str=trained.model_to_string())
        return self

    def _fit_constant(self, loss: PackSum) -> Self:
        """One score for all programs, if they are all equal, which LightGBM refuses."""
        import lightgbm

        data = lightgbm.Dataset(np.eye(2, loss.rows.shape[1]), np.zeros(2), params=_KEEP_COLUMNS)
        trained = lightgbm.train({**self._parameters(), "objective": "regression"}, data, 1)
        self._booster = lightgbm.Booster(model_str=trained.model_to_string())
        return self

    def _parameters(self) -> dict[str, Any]:
        return {
            "boosting": "gbdt",
            "num_leaves": self.leaves,
            "learning_rate": 0.1632095,
            "feature_fraction": 0.84375,
            "bagging_fraction": 0.89435,
            "bagging_freq": 4,
            "min_sum_hessian_in_leaf": 4,
            "metric": "none",
            "seed": self.seed,
            "deterministic": True,
            # Otherwise LightGBM times both ways to build histograms and picks one.
            "force_col_wise": True,
            "num_threads": self.threads,
            "verbosity": -1,
        }

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        if self._booster is None:
            raise ValueError("predict before fit")
        return predicted(
            programs,
            self._booster.num_feature(),
            lambda rows: self._booster.predict(rows, raw_score=True, num_threads=self.threads),
        )

    def save(self) -> bytes:
        if self._booster is None:
            raise ValueError("save before fit")
        return _MAGIC + str(self._booster.model_to_string()).encode()

    @classmethod
    def load(cls, data: bytes) -> Self:
        import lightgbm

        if not data.startswith(_MAGIC):
            raise ValueError("not a LightGBM cost model of this version")
        model = cls()
        try:
            model._booster = lightgbm.Booster(model_str=data[len(_MAGIC) :].decode())
        except lightgbm.basic.LightGBMError as error:
            raise ValueError(f"no boosted trees: {error}") from error
        return model
