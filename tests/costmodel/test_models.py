from __future__ import annotations

import numpy as np
import pytest

from tunefleet.costmodel import MODELS, CostModel, RandomModel, XGBModel

COLUMNS = 20


def programs(count: int, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [
        generator.random((generator.integers(1, 5), COLUMNS), dtype=np.float32)
        for _ in range(count)
    ]


def labels_of(found: list[np.ndarray]) -> np.ndarray:
    raw = np.array([p[:, 3].sum() - 0.5 * p[:, 7].sum() for p in found])
    return (raw - raw.min()) / (raw.max() - raw.min())


@pytest.mark.parametrize("kind", sorted(MODELS))
class TestEveryModel:
    """What every cost model promises."""

    @pytest.fixture
    def fitted(self, kind: str) -> CostModel:
        train = programs(60)
        return MODELS[kind]().fit(train, labels_of(train), ["t"] * len(train))

    def test_one_score_per_program(self, fitted: CostModel) -> None:
        assert fitted.predict(programs(7)).shape == (7,)

    def test_no_programs_no_scores(self, fitted: CostModel) -> None:
        assert len(fitted.predict([])) == 0

    def test_scores_are_finite(self, fitted: CostModel) -> None:
        assert np.isfinite(fitted.predict(programs(50, seed=3))).all()

    def test_survives_saving(self, fitted: CostModel, kind: str) -> None:
        loaded = MODELS[kind].load(fitted.save())
        again = MODELS[kind].load(loaded.save())
        test = programs(9, seed=5)
        np.testing.assert_array_equal(loaded.predict(test), again.predict(test))

    def test_rejects_foreign_bytes(self, fitted: CostModel, kind: str) -> None:
        with pytest.raises(ValueError, match="not a"):
            MODELS[kind].load(b"\x80\x04pickle")

    def test_is_named(self, fitted: CostModel, kind: str) -> None:
        assert fitted.name == kind


def test_xgb_ranks_better_than_random() -> None:
    train, test = programs(300), programs(100, seed=9)
    model = XGBModel().fit(train, labels_of(train), ["t"] * len(train))
    learned = np.corrcoef(model.predict(test), labels_of(test))[0, 1]
    guessed = np.corrcoef(RandomModel(1).predict(test), labels_of(test))[0, 1]
    assert learned > max(0.8, guessed)


def test_xgb_predicts_only_after_fit() -> None:
    with pytest.raises(ValueError, match="before fit"):
        XGBModel().predict(programs(1))


def test_xgb_rejects_another_schema() -> None:
    train = programs(20)
    model = XGBModel().fit(train, labels_of(train), ["t"] * 20)
    with pytest.raises(ValueError, match="columns"):
        model.predict([np.zeros((2, COLUMNS + 1), dtype=np.float32)])
