from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tunefleet.costmodel import (
    MODELS,
    AttentionModel,
    CostModel,
    LabelledPrograms,
    LGBMModel,
    MLPModel,
    RandomModel,
    UnifiedModel,
    XGBModel,
)
from tunefleet.costmodel.metrics import pairwise_accuracy

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


def model_of(kind: str) -> CostModel:
    """As small as shows the behaviour."""
    if kind == "lgbm":
        return LGBMModel(rounds=20)
    if kind == "attention":
        return AttentionModel(hidden=16, bins=8, epochs=6)
    if kind == "unified":
        return UnifiedModel(hidden=16, epochs=6)
    return MLPModel(hidden=16, epochs=6) if kind == "mlp" else MODELS[kind]()


def enough_of(kind: str) -> CostModel:
    """Enough to rank three hundred programs."""
    models: dict[str, CostModel] = {
        "attention": AttentionModel(hidden=32, bins=4, epochs=40, learning_rate=5e-3),
        "lgbm": LGBMModel(rounds=60),
        "mlp": MLPModel(hidden=32, epochs=40, learning_rate=5e-3),
        "unified": UnifiedModel(hidden=32, epochs=20),
        "xgb": XGBModel(),
    }
    return models[kind]


def measured(count: int, seed: int = 0) -> LabelledPrograms:
    found = programs(count, seed)
    return LabelledPrograms(found, labels_of(found), [f"t{i % 3}" for i in range(count)])


def marked(kinds: Iterable[str]) -> list[Any]:
    """Neural ones learn in PyTorch."""
    neural = pytest.mark.frameworks
    return [
        pytest.param(k, marks=neural) if k in ("attention", "mlp", "unified") else k for k in kinds
    ]


@pytest.mark.parametrize("kind", marked(sorted(MODELS)))
class TestEveryModel:
    """What every cost model promises."""

    @pytest.fixture
    def fitted(self, kind: str) -> CostModel:
        train = measured(60)
        return model_of(kind).fit(train.programs, train.labels, train.tasks)

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

    def test_takes_a_validation_part(self, kind: str) -> None:
        train = measured(60)
        model = model_of(kind).fit(train.programs, train.labels, train.tasks, measured(20, seed=4))
        assert np.isfinite(model.predict(train.programs)).all()

    def test_learns_the_same_from_the_same(self, kind: str) -> None:
        train, test = measured(60), programs(9, seed=5)
        scores = [
            model_of(kind).fit(train.programs, train.labels, train.tasks).predict(test)
            for _ in range(2)
        ]
        np.testing.assert_array_equal(scores[0], scores[1])

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_learns_from_a_few_programs(self, kind: str, count: int) -> None:
        model = model_of(kind).fit(programs(count), np.linspace(0.5, 1.0, count), ["t"] * count)
        assert np.isfinite(model.predict(programs(3))).all()

    def test_scores_programs_by_numbers_of_rows(self, kind: str) -> None:
        model = model_of(kind).fit(programs(60), labels_of(programs(60)), ["t"] * 60)
        tables = [np.concatenate(programs(4, seed=seed)) for seed in (5, 6)]
        local = np.random.default_rng(0).integers(0, len(np.concatenate(tables)), (9, 3))
        data = model.save()
        expected = MODELS[kind].load(data).predict(list(np.concatenate(tables)[local]))
        found = MODELS[kind].load(data).predict_distinct(tables, local)
        np.testing.assert_allclose(expected, found, rtol=1e-4)

    def test_learns_a_residual_if_it_says_so(self, kind: str) -> None:
        train = measured(60)
        given = (train.programs, train.labels, train.tasks, train.labels - 0.25)
        model = model_of(kind)
        if model.learns_residual:
            # What is left of every label is 0.25.
            left = model.fit_residual(*given).predict(train.programs)
            assert np.abs(left - 0.25).mean() < 0.05
        else:
            with pytest.raises(ValueError, match=f"{kind} models cannot learn a residual"):
                model.fit_residual(*given)

    def test_learns_on_if_it_says_so(self, fitted: CostModel, kind: str) -> None:
        test = programs(9, seed=5)
        more, held = measured(40, seed=7), measured(20, seed=8)
        if fitted.learns_on:
            before = fitted.predict(test)
            further = fitted.learned_on(more, held, seed=1, device="cpu", epochs=1)
            np.testing.assert_array_equal(before, fitted.predict(test))
            assert not np.array_equal(before, further.predict(test))
        else:
            with pytest.raises(ValueError, match=f"{kind} models can only be trained from scratch"):
                fitted.learned_on(more, held, seed=1, device="cpu")

    def test_learns_from_failures_alone(self, kind: str) -> None:
        model = model_of(kind).fit(programs(20), np.zeros(20), ["t"] * 20)
        assert np.isfinite(model.predict(programs(3))).all()


LEARNERS = ("attention", "lgbm", "mlp", "unified", "xgb")


@pytest.mark.parametrize("kind", marked(LEARNERS))
class TestEveryLearner:
    """What every cost model that learns promises besides."""

    def test_keeps_its_scores_when_saved(self, kind: str) -> None:
        train, test = measured(60), programs(9, seed=5)
        model = model_of(kind).fit(train.programs, train.labels, train.tasks)
        loaded = MODELS[kind].load(model.save())
        np.testing.assert_allclose(loaded.predict(test), model.predict(test), rtol=1e-6)

    def test_predicts_only_after_fit(self, kind: str) -> None:
        with pytest.raises(ValueError, match="before fit"):
            MODELS[kind]().predict(programs(1))

    def test_saves_only_after_fit(self, kind: str) -> None:
        with pytest.raises(ValueError, match="before fit"):
            MODELS[kind]().save()

    def test_rejects_another_schema(self, kind: str) -> None:
        train = measured(20)
        model = model_of(kind).fit(train.programs, train.labels, train.tasks)
        with pytest.raises(ValueError, match="columns"):
            model.predict([np.zeros((2, COLUMNS + 1), dtype=np.float32)])

    def test_rejects_what_it_did_not_save(self, kind: str) -> None:
        train = measured(20)
        data = model_of(kind).fit(train.programs, train.labels, train.tasks).save()
        start = data[: data.find(b"\n") + 1] if kind in ("lgbm", "xgb") else b""
        with pytest.raises(ValueError, match=r"no|not") as refused:
            MODELS[kind].load(start + b"x")
        assert len(str(refused.value)) < 200

    def test_refuses_no_programs(self, kind: str) -> None:
        with pytest.raises(ValueError, match="0 programs"):
            MODELS[kind]().fit([], np.zeros(0), [])

    def test_a_program_without_rows_is_refused(self, kind: str) -> None:
        with pytest.raises(ValueError, match="without rows"):
            MODELS[kind]().fit([np.zeros((0, COLUMNS), dtype=np.float32)], np.ones(1), ["t"])

    def test_ranks_better_than_random(self, kind: str) -> None:
        train, test = programs(300), programs(100, seed=9)
        model = enough_of(kind)
        model.fit(train, labels_of(train), ["t"] * len(train))
        learned = pairwise_accuracy(labels_of(test), model.predict(test))
        guessed = pairwise_accuracy(labels_of(test), RandomModel(1).predict(test))
        assert learned > max(0.75, guessed)

    def test_learns_all_the_same_where_validation_has_no_pairs(self, kind: str) -> None:
        train, test, other = programs(300), programs(100, seed=9), programs(30, seed=4)
        labels = labels_of([*train, *other])[len(train) :]
        single = LabelledPrograms(other, labels, [f"t{i}" for i in range(len(other))])
        model = enough_of(kind)
        model.fit(train, labels_of(train), ["t"] * len(train), single)
        assert pairwise_accuracy(labels_of(test), model.predict(test)) > 0.75


@pytest.mark.frameworks
def test_mlp_ignores_the_order_of_rows() -> None:
    train = measured(60)
    model = MLPModel(hidden=16, epochs=6).fit(train.programs, train.labels, train.tasks)
    test = programs(9, seed=5)
    turned = [program[::-1] for program in test]
    np.testing.assert_allclose(model.predict(test), model.predict(turned), rtol=1e-4, atol=1e-6)


def test_lgbm_stops_when_validation_gets_no_better() -> None:
    train = measured(60)
    noise = LabelledPrograms(
        train.programs[:20], np.random.default_rng(1).random(20), train.tasks[:20]
    )
    stopped = LGBMModel(rounds=400).fit(train.programs, train.labels, train.tasks, noise)
    full = LGBMModel(rounds=400).fit(train.programs, train.labels, train.tasks)
    assert len(stopped.save()) < len(full.save())
