from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunefleet.costmodel import AttentionModel, LabelledPrograms, has_cuda, metrics
from tunefleet.costmodel._attention_net import FIXED, embed, forward, initial, intervals, narrowed
from tunefleet.costmodel._calibration import UNCHANGED, calibrated, is_line, line_through
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._tensors import FORMAT, dumps, loads
from tunefleet.costmodel._torch import torch

pytestmark = pytest.mark.frameworks

COLUMNS = 12
FORMAT_NAME = "tunefleet-attention/1"


def programs(count: int, seed: int = 0) -> list[np.ndarray]:
    """Of powers of two, as features mostly are, so that rows repeat."""
    generator = np.random.default_rng(seed)
    return [
        generator.integers(0, 4, (generator.integers(1, 6), COLUMNS)).astype(np.float32)
        for _ in range(count)
    ]


def measured(count: int, seed: int = 0, column: int = 3) -> LabelledPrograms:
    found = programs(count, seed)
    raw = np.array([p[:, column].sum() for p in found])
    return LabelledPrograms(
        found, (1.0 + raw) / (1.0 + raw.max()), [f"t{i % 2}" for i in range(count)]
    )


def small(**settings: object) -> AttentionModel:
    return AttentionModel(**{"hidden": 16, "bins": 4, "epochs": 4} | settings)  # type: ignore[arg-type]


def fit(
    model: AttentionModel, train: LabelledPrograms, held: LabelledPrograms | None = None
) -> AttentionModel:
    return model.fit(train.programs, train.labels, train.tasks, held)


@lru_cache(maxsize=1)
def fitted() -> bytes:
    return fit(small(), measured(60)).save()


def pca(model: AttentionModel, test: LabelledPrograms) -> float:
    return metrics.pairwise_accuracy(test.labels, model.predict(test.programs))


@pytest.mark.parametrize("epochs", [1, 8, 9, 10])
def test_any_number_of_steps_can_be_learnt_in(epochs: int) -> None:
    assert len(fit(small(epochs=epochs), measured(20)).history) == epochs


class TestNetwork:
    @pytest.mark.parametrize("layers", [1, 2])
    def test_numpy_and_pytorch_agree(self, layers: int) -> None:
        data = DistinctRows.of(programs(30))
        weights = initial(intervals(data.distinct, 8), 16, layers, np.random.default_rng(1))
        rows = data.padded(np.arange(30))
        local, inside = rows.local, rows.inside.astype(np.float32)
        of_numpy = forward(np, weights, 4, embed(np, weights, rows.distinct), local, inside)
        torch_ = torch()
        tensors = {name: torch_.from_numpy(value) for name, value in weights.items()}
        embedded = embed(torch_, tensors, torch_.from_numpy(rows.distinct))
        of_torch = forward(torch_, tensors, 4, embedded, *map(torch_.from_numpy, (local, inside)))
        assert of_numpy.dtype == np.float32
        np.testing.assert_allclose(of_numpy, of_torch.numpy(), rtol=1e-4, atol=1e-6)

    def test_runs_on_the_device_of_its_weights(self) -> None:
        rows = DistinctRows.of(programs(5)).padded(np.arange(5))
        given_ = initial(intervals(rows.distinct, 4), 16, 1, np.random.default_rng(0))
        weights = {name: torch().from_numpy(value).to("meta") for name, value in given_.items()}
        distinct, local, inside = (
            torch().from_numpy(value).to("meta")
            for value in (rows.distinct, rows.local, rows.inside.astype(np.float32))
        )
        embedded = embed(torch(), weights, distinct)
        found = forward(torch(), weights, 4, embedded, local, inside)
        assert (found.device.type, tuple(found.shape)) == ("meta", (5,))

    def test_programs_of_one_length_need_no_mask(self) -> None:
        rows = np.random.default_rng(0).random((12, COLUMNS), dtype=np.float32)
        weights = initial(intervals(rows, 4), 16, 2, np.random.default_rng(1))
        local, embedded = np.arange(12).reshape(3, 4), embed(np, weights, rows)
        masked = forward(np, weights, 4, embedded, local, np.ones((3, 4), np.float32))
        np.testing.assert_allclose(forward(np, weights, 4, embedded, local), masked, rtol=1e-6)

    @settings(max_examples=30, deadline=None)
    @given(st.integers(1, 12), st.integers(0, 2**32 - 1))
    def test_what_rows_have_in_common_is_worked_out_once(self, count: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        known = generator.integers(0, 4, (60, COLUMNS)).astype(np.float32)
        weights = initial(intervals(known, 8), 16, 1, generator)
        rows = known[:count].copy()
        rows[:, generator.random(COLUMNS) < 0.5] = 2.0
        fewer, narrow = narrowed(weights, rows)
        assert narrow.shape[1] < COLUMNS or count > 1
        np.testing.assert_allclose(
            embed(np, weights, rows), embed(np, fewer, narrow), rtol=1e-4, atol=1e-5
        )

    def test_a_column_that_says_nothing_has_no_interval(self) -> None:
        rows = np.array([[0, 5, 0], [0, 5, 1], [0, 5, 2]], np.float32)
        assert set(intervals(rows, 4)["column"].tolist()) == {2}

    def test_intervals_cover_the_values_and_zero(self) -> None:
        found = intervals(np.array([[1.0], [2.0], [4.0]], np.float32), 3)
        assert found["low"][0] == 0.0
        assert (found["low"] + found["width"])[-1] == 4.0
        assert (found["width"] > 0).all()


class TestModel:
    def test_programs_may_come_as_distinct_rows(self) -> None:
        model, generator = AttentionModel.load(fitted()), np.random.default_rng(0)
        distinct = [np.concatenate(programs(count, seed=4)) for count in (5, 3)]
        rows = np.concatenate(distinct)
        local = generator.integers(0, len(rows), (300, 6))
        expected = model.predict(list(rows[local]))
        np.testing.assert_allclose(expected, model.predict_distinct(distinct, local), rtol=1e-4)

    def test_tables_of_distinct_rows_may_be_empty(self) -> None:
        model, empty = AttentionModel.load(fitted()), np.zeros((0, COLUMNS), np.float32)
        row = np.ones((1, COLUMNS), np.float32)
        assert len(model.predict_distinct([empty, empty], np.zeros((0, 3), int))) == 0
        found = model.predict_distinct([row, empty], np.zeros((1, 1), int))
        np.testing.assert_allclose(model.predict([row]), found, rtol=1e-6)

    def test_a_table_is_embedded_once_while_it_is_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = AttentionModel.load(fitted())
        embedded: list[int] = []
        real = AttentionModel._embedded

        def seen(self: AttentionModel, rows: Any) -> Any:
            embedded.append(len(rows))
            return real(self, rows)

        monkeypatch.setattr(AttentionModel, "_embedded", seen)
        table, local = np.concatenate(programs(5, seed=4)), np.zeros((1, 2), int)
        first = model.predict_distinct([np.ones((1, COLUMNS), np.float32), table], local)
        again = model.predict_distinct([np.ones((1, COLUMNS), np.float32), table], local)
        assert embedded == [1, len(table), 1]
        np.testing.assert_array_equal(first, again)
        assert len(model._tables) == 1  # those of one row are gone
        for _ in range(3):
            many = [np.ones((1, COLUMNS), np.float32) for _ in range(50)]
            model.predict_distinct(many, local)
        assert len(model._tables) <= 64

    def test_a_table_is_embedded_anew_by_other_weights(self) -> None:
        model, table = AttentionModel.load(fitted()), np.concatenate(programs(5, seed=4))
        local = np.arange(len(table))[:, None]
        before = model.predict_distinct([table], local)
        given = programs(40, seed=3)
        model.partial_fit(given, np.linspace(0.1, 1, 40), ["a"] * 40, epochs=2)
        after = model.predict_distinct([table], local)
        assert not np.allclose(before, after)
        np.testing.assert_allclose(model.predict([row[None] for row in table]), after, rtol=1e-4)

    def test_distinct_rows_of_another_schema_are_refused(self) -> None:
        own, other = np.ones((2, COLUMNS), np.float32), np.ones((2, 3), np.float32)
        with pytest.raises(ValueError, match="columns"):
            AttentionModel.load(fitted()).predict_distinct([own, other], np.zeros((1, 1), int))
        with pytest.raises(ValueError, match="before fit"):
            small().predict_distinct([np.ones((2, COLUMNS), np.float32)], np.zeros((1, 1), int))

    def test_scores_do_not_depend_on_the_programs_beside(self) -> None:
        model, test = AttentionModel.load(fitted()), programs(40, seed=2)
        apart = np.concatenate([model.predict([program]) for program in test])
        np.testing.assert_allclose(model.predict(test), apart, rtol=1e-4)

    def test_scores_do_not_depend_on_the_order_of_rows_after_the_first(self) -> None:
        model, test = AttentionModel.load(fitted()), programs(40, seed=2)
        turned = [np.concatenate([program[:1], program[:0:-1]]) for program in test]
        np.testing.assert_allclose(model.predict(test), model.predict(turned), rtol=1e-4)

    def test_rows_far_from_what_was_seen_have_finite_scores(self) -> None:
        model = AttentionModel.load(fitted())
        with np.errstate(all="ignore"):
            found = model.predict([np.float32(1e3) * program for program in programs(20, seed=2)])
        assert np.isfinite(found).all()

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
        "settings", ["[", "[" * 5000,
                      "3", "{}[]", '{"hidden":0}', '{"hidden":4000000}', '{"hidden":-4}',
                     '{"hidden":"a"}', '{"heads":0}', '{"layers":-1}', '{"unknown":1}'],
    )  # fmt: skip
    def test_settings_that_fit_no_model_are_refused(self, settings: str) -> None:
        arrays, _ = loads(fitted(), FORMAT_NAME)
        try:
            changed = json.dumps({"hidden": 16, "bins": 4} | json.loads(settings))
        except (ValueError, TypeError, RecursionError):
            changed = settings
        with pytest.raises(ValueError, match="not an attention cost model"):
            AttentionModel.load(dumps(arrays, {FORMAT: FORMAT_NAME, "settings": changed}))

    @pytest.mark.parametrize(
        "wrong", [{"hidden": 11}, {"loss": "mse"}, {"layers": 0}, {"heads": 0}]
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

    def test_attention_adds_up_and_rows_that_are_alike_are_seen_alike(self) -> None:
        model = AttentionModel.load(fitted())
        program = programs(1)[0]
        seen = model.attention(program)
        assert seen.shape == (model.heads, len(program), len(program))
        np.testing.assert_allclose(seen.sum(axis=2), 1.0, rtol=1e-5)
        seen = model.attention(np.concatenate([program, program]))
        np.testing.assert_allclose(
            seen[:, :, : len(program)], seen[:, :, len(program) :], rtol=1e-4
        )


class TestStopping:
    def test_the_best_epoch_of_validation_is_kept(self) -> None:
        held = measured(40, seed=3)
        model = fit(small(epochs=30, patience=30, learning_rate=5e-3), measured(60), held)
        best = max(epoch.pca for epoch in model.history)
        assert len(model.history) == 30
        assert pca_by_task(model, held) == pytest.approx(best)

    def test_patience_ends_a_training_that_gets_no_better(self) -> None:
        noise = measured(40, seed=3)
        held = LabelledPrograms(noise.programs, np.random.default_rng(0).random(40), noise.tasks)
        model = fit(small(epochs=200, patience=3), measured(60), held)
        ordered = [epoch.pca for epoch in model.history]
        since = ordered[::-1].index(max(ordered))
        assert since == 4
        assert len(model.history) < 200


def pca_by_task(model: AttentionModel, held: LabelledPrograms) -> float:
    numbers = np.unique(held.tasks, return_inverse=True)[1]
    return metrics.ranking(held.labels, model.predict(held.programs), numbers).pca


class TestCalibration:
    def test_scores_become_the_labels_to_expect_of_them(self) -> None:
        generator = np.random.default_rng(0)
        scores, fresh = generator.random(600), generator.random(600)
        line = line_through(scores, scores**3 + generator.normal(0, 0.1, 600))
        found = calibrated(fresh, line)
        assert metrics.rmse(fresh**3, found) < 0.05 < 0.2 < metrics.rmse(fresh**3, fresh)

    @settings(max_examples=50, deadline=None)
    @given(st.integers(0, 400), st.integers(0, 2**32 - 1))
    def test_the_order_stays(self, count: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        line = line_through(generator.random(count), generator.random(count).round())
        scores = np.sort(generator.random(50))
        assert is_line(line)
        assert (np.diff(calibrated(scores, line)) > 0).all()

    def test_few_records_leave_scores_as_they_are(self) -> None:
        assert line_through(np.linspace(0, 1, 31), np.ones(31)) is UNCHANGED
        assert calibrated(np.array([0.3]), UNCHANGED) == [0.3]

    def test_what_did_not_train_calibrates(self) -> None:
        train, held = measured(60), measured(200, seed=3)
        half = LabelledPrograms(held.programs, held.labels / 2, held.tasks)
        model = fit(small(), train, half)
        plain = fit(small(), train, held.take(np.arange(20)))
        assert metrics.rmse(half.labels, model.predict(half.programs)) < 0.13
        assert metrics.rmse(half.labels, plain.predict(half.programs)) > 0.2
        np.testing.assert_array_equal(
            AttentionModel.load(model.save()).predict(half.programs), model.predict(half.programs)
        )

    def test_going_on_without_validation_keeps_it(self) -> None:
        model = fit(small(), measured(60), measured(100, seed=3))
        new = measured(40, seed=8)
        model.partial_fit(new.programs, new.labels, new.tasks, epochs=1, learning_rate=0.0)
        other = AttentionModel.load(model.save())
        assert loads(other.save(), FORMAT_NAME)[0]["calibration"].shape == (2, 6)

    @pytest.mark.parametrize(
        "line", [np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((3, 3), np.float32),
                 np.array([[0, 1], [1, 0]], np.float32), np.full((2, 2), np.nan, np.float32)],
    )  # fmt: skip
    def test_what_is_no_rising_line_is_refused(self, line: np.ndarray) -> None:
        arrays, header = loads(fitted(), FORMAT_NAME)
        with pytest.raises(ValueError, match="not an attention cost model"):
            AttentionModel.load(dumps(arrays | {"calibration": line}, header))


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


@pytest.fixture
def gpu() -> str:
    if not has_cuda():
        pytest.skip("needs a GPU that PyTorch can use")
    return "cuda"


class TestOnAGpu:
    @pytest.mark.parametrize("loss", ["gap", "lambdarank"])
    def test_learns_what_it_learns_on_the_cpu(self, gpu: str, loss: str) -> None:
        train, held, test = measured(200), measured(60, seed=3), measured(60, seed=7)
        settings = {"loss": loss, "epochs": 40, "learning_rate": 3e-3, "dropout": 0.0}
        here = fit(small(**settings), train, held)
        there = fit(small(**settings, device=gpu), train, held)
        assert pca(here, test) == pytest.approx(pca(there, test), abs=0.03)
        # The first epoch differs by rounding alone; later ones by what rounding became.
        assert there.history[0].rmse == pytest.approx(here.history[0].rmse, abs=1e-3)

    def test_what_it_learned_needs_no_gpu(self, gpu: str) -> None:
        model, test = fit(small(device=gpu), measured(60)), programs(9, seed=5)
        loaded = AttentionModel.load(model.save())
        assert loaded.device == "cpu"
        np.testing.assert_array_equal(loaded.predict(test), model.predict(test))

    def test_goes_on_from_what_the_cpu_learned(self, gpu: str) -> None:
        model, new = AttentionModel.load(fitted()), measured(60, seed=8, column=5)
        before = pca(model, new)
        model.device = gpu
        model.partial_fit(new.programs, new.labels, new.tasks, epochs=40, learning_rate=5e-3)
        assert pca(model, new) > before
