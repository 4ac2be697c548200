from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.costmodel import AttentionModel, Measured, metrics
from tunefleet.costmodel._attention_net import FIXED, forward, initial, intervals
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._tensors import FORMAT, dumps, loads
from tunefleet.costmodel._torch import torch

COLUMNS = 12
FORMAT_NAME = "tunefleet-attention/1"


def programs(count: int, seed: int = 0) -> list[np.ndarray]:
    """Of powers of two, as features mostly are, so that rows repeat."""
    generator = np.random.default_rng(seed)
    return [
        generator.integers(0, 4, (generator.integers(1, 6), COLUMNS)).astype(np.float32)
        for _ in range(count)
    ]


def measured(count: int, seed: int = 0, column: int = 3) -> Measured:
    found = programs(count, seed)
    raw = np.array([p[:, column].sum() for p in found])
    return Measured(found, (1.0 + raw) / (1.0 + raw.max()), [f"t{i % 2}" for i in range(count)])


def small(**settings: object) -> AttentionModel:
    return AttentionModel(**{"hidden": 16, "bins": 4, "epochs": 4} | settings)  # type: ignore[arg-type]


def fit(model: AttentionModel, train: Measured, held: Measured | None = None) -> AttentionModel:
    return model.fit(train.programs, train.labels, train.tasks, held)


@lru_cache(maxsize=1)
def fitted() -> bytes:
    return fit(small(), measured(60)).save()


def pca(model: AttentionModel, test: Measured) -> float:
    return metrics.pairwise_accuracy(test.labels, model.predict(test.programs))


class TestNetwork:
    @pytest.mark.parametrize("layers", [1, 2])
    def test_numpy_and_pytorch_agree(self, layers: int) -> None:
        data = DistinctRows.of(programs(30))
        generator = np.random.default_rng(1)
        weights = initial(intervals(data.distinct, 8), 16, layers, generator)
        rows = data.padded(np.arange(30))
        given_ = (rows.distinct, rows.local, rows.inside.astype(np.float32))
        of_numpy = forward(np, weights, 4, *given_)
        tensors = {name: torch().from_numpy(value) for name, value in weights.items()}
        of_torch = forward(torch(), tensors, 4, *map(torch().from_numpy, given_))
        assert of_numpy.dtype == np.float32
        np.testing.assert_allclose(of_numpy, of_torch.numpy(), rtol=1e-4, atol=1e-6)

    def test_runs_on_the_device_of_its_weights(self) -> None:
        data = DistinctRows.of(programs(5))
        weights = initial(intervals(data.distinct, 4), 16, 1, np.random.default_rng(0))
        rows = data.padded(np.arange(5))
        moved = [
            torch().from_numpy(value).to("meta")
            for value in (rows.distinct, rows.local, rows.inside.astype(np.float32))
        ]
        there = {name: torch().from_numpy(value).to("meta") for name, value in weights.items()}
        found = forward(torch(), there, 4, *moved)
        assert (found.device.type, tuple(found.shape)) == ("meta", (5,))

    def test_a_column_that_says_nothing_has_no_interval(self) -> None:
        rows = np.array([[0, 5, 0], [0, 5, 1], [0, 5, 2]], np.float32)
        assert set(intervals(rows, 4)["column"].tolist()) == {2}

    def test_intervals_cover_the_values_and_zero(self) -> None:
        found = intervals(np.array([[1.0], [2.0], [4.0]], np.float32), 3)
        assert found["low"][0] == 0.0
        assert (found["low"] + found["width"])[-1] == 4.0
        assert (found["width"] > 0).all()


class TestModel:
    def test_scores_do_not_depend_on_the_programs_beside(self) -> None:
        model, test = AttentionModel.load(fitted()), programs(40, seed=2)
        apart = np.concatenate([model.predict([program]) for program in test])
        np.testing.assert_allclose(model.predict(test), apart, rtol=1e-4)

    def test_scores_do_not_depend_on_the_order_of_rows(self) -> None:
        model, test = AttentionModel.load(fitted()), programs(40, seed=2)
        turned = [program[::-1] for program in test]
        np.testing.assert_allclose(model.predict(test), model.predict(turned), rtol=1e-4)

    def test_a_saved_model_is_the_same(self) -> None:
        model = fit(small(layers=2, bins=3, loss="lambdarank"), measured(40))
        loaded = AttentionModel.load(model.save())
        assert loaded.save() == model.save()
        assert (loaded.layers, loaded.bins, loaded.loss) == (2, 3, "lambdarank")
        test = programs(9, seed=5)
        np.testing.assert_array_equal(loaded.predict(test), model.predict(test))

    @pytest.mark.parametrize("at", [0, 7, 30, 200, -1])
    def test_a_cut_file_is_refused(self, at: int) -> None:
        with pytest.raises(ValueError, match="not a"):
            AttentionModel.load(fitted()[:at])

    @pytest.mark.parametrize("name", ["mean", "column", "w_rows1", "b_score"])
    def test_a_file_with_a_damaged_array_is_refused(self, name: str) -> None:
        arrays, header = loads(fitted(), FORMAT_NAME)
        without = {n: a for n, a in arrays.items() if n != name}
        for damaged in (without, arrays | {name: arrays[name][..., :-1]}):
            with pytest.raises(ValueError, match="not an attention cost model"):
                AttentionModel.load(dumps(damaged, header))

    def test_an_interval_of_a_column_that_is_not_there_is_refused(self) -> None:
        arrays, header = loads(fitted(), FORMAT_NAME)
        for column in (COLUMNS, -1):
            damaged = arrays | {"column": np.full_like(arrays["column"], column)}
            with pytest.raises(ValueError, match="not an attention cost model"):
                AttentionModel.load(dumps(damaged, header))

    def test_an_array_of_another_kind_is_refused(self) -> None:
        arrays, header = loads(fitted(), FORMAT_NAME)
        damaged = arrays | {"w_rows2": arrays["w_rows2"].astype(np.int64)}
        with pytest.raises(ValueError, match="not an attention cost model"):
            AttentionModel.load(dumps(damaged, header))

    @pytest.mark.parametrize(
        "settings", ["[", "3", "{}[]", '{"hidden":0}', '{"hidden":4000000}', '{"hidden":-4}',
                     '{"hidden":"a"}', '{"heads":0}', '{"layers":-1}', '{"unknown":1}'],
    )  # fmt: skip
    def test_settings_that_fit_no_model_are_refused(self, settings: str) -> None:
        arrays, _ = loads(fitted(), FORMAT_NAME)
        try:
            changed = json.dumps({"hidden": 16, "bins": 4} | json.loads(settings))
        except (ValueError, TypeError):
            changed = settings
        with pytest.raises(ValueError, match="not an attention cost model"):
            AttentionModel.load(dumps(arrays, {FORMAT: FORMAT_NAME, "settings": changed}))

    @pytest.mark.parametrize(
        "wrong", [{"hidden": 10}, {"loss": "mse"}, {"layers": 0}, {"heads": 0}]
    )
    def test_settings_that_no_network_has_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match="heads"):
            small(**wrong)

    def test_another_seed_is_another_model(self) -> None:
        found = {fit(small(epochs=1, seed=seed), measured(30)).save() for seed in (0, 0, 1)}
        assert len(found) == 2

    def test_both_losses_learn(self) -> None:
        train, test = measured(200), measured(60, seed=7)
        for loss in ("gap", "lambdarank"):
            model = small(loss=loss, epochs=40, learning_rate=3e-3)
            assert pca(fit(model, train), test) > 0.7


class TestStopping:
    def test_the_best_epoch_of_validation_is_kept(self) -> None:
        held = measured(40, seed=3)
        model = fit(small(epochs=30, patience=30, learning_rate=5e-3), measured(60), held)
        best = max(epoch.pca for epoch in model.history)
        assert len(model.history) == 30
        assert pca_by_task(model, held) == pytest.approx(best)

    def test_patience_ends_a_training_that_gets_no_better(self) -> None:
        noise = measured(40, seed=3)
        held = Measured(noise.programs, np.random.default_rng(0).random(40), noise.tasks)
        model = fit(small(epochs=200, patience=3), measured(60), held)
        best = int(np.argmax([epoch.pca for epoch in model.history]))
        assert len(model.history) == best + 1 + 4
        assert len(model.history) < 200


def pca_by_task(model: AttentionModel, held: Measured) -> float:
    numbers = np.unique(held.tasks, return_inverse=True)[1]
    return metrics.ranking(held.labels, model.predict(held.programs), numbers).pca


class TestGoingOn:
    def test_only_learnt_weights_change(self) -> None:
        model = AttentionModel.load(fitted())
        new = measured(40, seed=8, column=5)
        model.partial_fit(new.programs, new.labels, new.tasks, epochs=2)
        before, _ = loads(fitted(), FORMAT_NAME)
        after, _ = loads(model.save(), FORMAT_NAME)
        same = {name for name in before if np.array_equal(before[name], after[name])}
        assert same == set(FIXED)

    def test_a_new_task_is_learnt(self) -> None:
        model = AttentionModel.load(fitted())
        train, test = measured(150, seed=8, column=5), measured(60, seed=9, column=5)
        before = pca(model, test)
        model.partial_fit(train.programs, train.labels, train.tasks, epochs=30, learning_rate=3e-3)
        assert pca(model, test) > before + 0.1

    def test_it_needs_a_model(self) -> None:
        new = measured(5)
        with pytest.raises(ValueError, match="before fit"):
            small().partial_fit(new.programs, new.labels, new.tasks)

    def test_it_refuses_another_schema(self) -> None:
        wide = [np.zeros((2, COLUMNS + 1), np.float32)] * 2
        with pytest.raises(ValueError, match="columns"):
            AttentionModel.load(fitted()).partial_fit(wide, np.ones(2), ["t"] * 2)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_distinct_rows_are_the_rows(count: int, seed: int) -> None:
    found = programs(count, seed)
    rows = DistinctRows.of(found).padded(np.arange(count))
    for program, local, inside in zip(found, rows.local, rows.inside, strict=True):
        np.testing.assert_array_equal(program, rows.distinct[local[inside]])
