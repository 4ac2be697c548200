from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from tunefleet.costmodel import LabelledPrograms, UnifiedModel, metrics
from tunefleet.costmodel._attention_net import FIXED, initial, intervals
from tunefleet.costmodel._attention_training import Kept, Training, TrainingParameters
from tunefleet.costmodel._domains import Domains
from tunefleet.costmodel._forest import Forest, Table, parts_of
from tunefleet.costmodel._lists import groups_of
from tunefleet.costmodel._plasticity import METHODS, Plasticity, after
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._sample import Sample
from tunefleet.costmodel._tensors import FORMAT, dumps, loads

pytestmark = pytest.mark.frameworks

COLUMNS = 8
DEVICE, TASK, GOOD = 0, 1, 3
FORMAT_NOW = "tunefleet-unified/4"


def programs_of(device: int, count: int, seed: int = 0, tasks: int = 3) -> list[np.ndarray]:
    """The first row tells of device and task, the others of the program. They repeat."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(count):
        rows = np.zeros((3, COLUMNS), np.float32)
        rows[1:, GOOD : GOOD + 2] = generator.integers(0, 5, (2, 2))
        rows[0, DEVICE], rows[0, TASK] = device, number % tasks
        found.append(rows)
    return found


def measured(device: int, count: int = 90, sign: float = 1.0, seed: int = 0) -> LabelledPrograms:
    """Programs are good for a device by one column, and bad for one of the other sign."""
    found = programs_of(device, count, seed)
    raw = sign * np.array([p[1:, GOOD].sum() for p in found])
    labels = (1.0 + raw - raw.min()) / (1.0 + np.ptp(raw))
    tasks = [f"{device}-{number % 3}" for number in range(count)]
    return LabelledPrograms(found, labels, tasks, [f"d{device}"] * count)


def together(*parts: LabelledPrograms) -> LabelledPrograms:
    return LabelledPrograms(
        [program for part in parts for program in part.programs],
        np.concatenate([part.labels for part in parts]),
        [task for part in parts for task in part.tasks],
        [device for part in parts for device in part.devices],
    )


def ordered(model: UnifiedModel, test: LabelledPrograms) -> float:
    tasks = np.unique(test.tasks, return_inverse=True)[1]
    return metrics.ranking(test.labels, model.predict(test.programs), tasks).pca


def small(**settings: object) -> UnifiedModel:
    return UnifiedModel(**{"hidden": 16, "epochs": 6} | settings)  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def of_two() -> bytes:
    """Learned one device, then one where the contrary is good."""
    model = small(replay=20).learn(measured(1), measured(1, 40, seed=1))
    return model.learned_on(
        measured(2, sign=-1.0), measured(2, 40, -1.0, seed=1), seed=0, device="cpu", epochs=6
    ).save()


class TestModel:
    @pytest.mark.parametrize("device", [1, 2, 7])  # the last is unseen
    def test_rows_of_a_table_are_programs(self, device: int) -> None:
        model = UnifiedModel.load(of_two())
        programs = programs_of(device, 20, seed=3)
        table = np.concatenate(programs)
        local = np.arange(len(table)).reshape(len(programs), -1)
        expected = model.predict(programs)
        assert np.ptp(expected) > 0
        found = model.predict_distinct([table[:7], table[7:]], local)
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    @pytest.mark.parametrize("devices", [(1, 2), (7, 8), (1, 7)])  # 7 and 8 are unseen
    def test_lists_are_scored_as_each_alone(self, devices: tuple[int, int]) -> None:
        model = UnifiedModel.load(of_two())
        tables = [np.concatenate(programs_of(device, 20, seed=3)) for device in devices]
        local = [np.arange(len(table)).reshape(20, -1) for table in tables]
        local[1] = local[1][:7]
        lists = [([table], own) for table, own in zip(tables, local, strict=True)]
        lists.insert(1, (tables, np.zeros((0, 3), np.int64)))
        found = model.predict_lists(lists)
        assert [len(own) for own in found] == [20, 0, 7]
        for own, each in zip(found, lists, strict=True):
            np.testing.assert_allclose(own, model.predict_distinct(*each), rtol=1e-6)

    def test_programs_of_another_schema_are_refused_by_a_model_that_tells_devices_apart(
        self,
    ) -> None:
        with pytest.raises(ValueError, match=f"have 7 columns, the model {COLUMNS}"):
            UnifiedModel.load(of_two()).predict([np.zeros((2, 7), np.float32)])

    @pytest.mark.parametrize("method", METHODS)
    def test_it_is_held_by_any_method_from_the_first_device_on(self, method: str) -> None:
        first = small(plasticity=method).learn(measured(1, 30), measured(1, 30, seed=1))
        second = first.learned_on(
            measured(2, 30), measured(2, 30, seed=1), seed=0, device="cpu", epochs=2
        )
        for model in (first, second):
            assert model._kept is not None
            assert max(float(b.max()) for b in model._kept.importance.values()) > 0

    def test_what_was_learned_first_is_still_known(self) -> None:
        model = UnifiedModel.load(of_two())
        assert ordered(model, measured(1, seed=5)) > 0.85
        assert ordered(model, measured(2, sign=-1.0, seed=5)) > 0.85

    def test_the_network_that_has_forgotten_a_device_is_kept_as_it_was(self) -> None:
        parent = small(strength=0.0, replay=0, epochs=30).learn(
            measured(1), measured(1, 40, seed=1)
        )
        child = parent.learned_on(
            measured(2, sign=-1.0), measured(2, 40, -1.0, seed=1), seed=0, device="cpu", epochs=60
        )
        test = measured(1, seed=5)
        numbers = np.unique(test.tasks, return_inverse=True)[1]
        forgotten = metrics.ranking(test.labels, child.network.predict(test.programs), numbers).pca
        assert forgotten < ordered(parent, test) - 0.2
        assert ordered(child, test) > ordered(parent, test) - 0.02
        arrays, _ = loads(child.save(), FORMAT_NOW)
        assert [int(arrays[f"chapter{number}/network"][0]) for number in range(2)] == [0, 1]

    def test_a_device_that_was_learned_many_times_is_ranked_as_one_that_was_once(self) -> None:
        model = UnifiedModel.load(of_two())
        test = programs_of(1, 9, seed=4)
        once = model.predict(test)
        model._chapters *= 150
        np.testing.assert_allclose(once, model.predict(test), rtol=1e-6)

    def test_a_network_that_knows_more_takes_the_place_of_the_one_before(self) -> None:
        first = small(epochs=1).learn(measured(1), measured(1, 40, seed=1))
        second = first.learned_on(
            measured(1, seed=2), measured(1, 40, seed=1), seed=0, device="cpu", epochs=20
        )
        arrays, _ = loads(second.save(), FORMAT_NOW)
        assert [name for name in arrays if name.startswith("net")] == ["net0"]

    def test_it_keeps_programs_of_each_thing_it_learned(self) -> None:
        kept = UnifiedModel.load(of_two()).remembered
        assert [len(each.labels) for each in kept] == [40, 40]
        assert kept[0].programs[0][0, DEVICE] == 1

    def test_what_is_saved_has_replay_and_importances(self) -> None:
        arrays, _ = loads(of_two(), FORMAT_NOW)
        assert len(arrays["replay/labels"]) == 40
        assert any(name.startswith("kept/importance.") for name in arrays)

    def test_a_child_leaves_its_parent_as_it_is(self) -> None:
        parent, test = UnifiedModel.load(of_two()), programs_of(1, 9, seed=4)
        before = parent.predict(test)
        parent.learned_on(measured(3), measured(3, 40, seed=1), seed=1, device="cpu", epochs=1)
        np.testing.assert_array_equal(before, parent.predict(test))

    def test_a_device_on_which_known_ones_disagree_is_ranked_about_by_chance(self) -> None:
        apart = together(*(measured(d, sign=1.0 if d % 2 else -1.0, seed=d) for d in range(1, 5)))
        model = small().learn(apart, measured(1, 40, seed=9))
        found = [ordered(model, measured(7, seed=seed)) for seed in range(10, 14)]
        assert abs(np.mean(found) - 0.5) < 0.12

    def test_a_device_on_which_known_ones_agree_is_ranked_by_what_they_know(self) -> None:
        alike = together(*(measured(device, seed=device) for device in range(1, 5)))
        model = small().learn(alike, measured(1, 40, seed=9))
        assert ordered(model, measured(7, seed=10)) > 0.8

    def test_programs_of_another_tuner_are_not_ranked_by_the_contrary_of_what_is_true(self) -> None:
        alike = together(*(measured(device, seed=device) for device in range(1, 5)))
        model = small().learn(alike, measured(1, 40, seed=9))
        found = []
        for seed in range(10, 14):
            others = measured(7, sign=-1.0, seed=seed)
            for program in others.programs:
                program[1:, COLUMNS - 1] = 1.0
            found.append(ordered(model, others))
        assert np.mean(found) > 0.4

    @pytest.mark.parametrize(
        "settings",
        [
            {"plasticity": "none"},
            {"strength": -1.0},
            {"strength": np.inf},
            {"replay": -1},
            {"hidden": 12},
        ],
    )
    def test_parameters_that_cannot_be_are_refused(self, settings: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"plasticity|not a multiple"):
            small(**settings)

    def test_however_strongly_it_is_held_its_scores_are_numbers(self) -> None:
        first = small(strength=1e300).learn(measured(1, 30), measured(1, 30, seed=1))
        second = first.learned_on(
            measured(2, 30), measured(2, 30, seed=1), seed=0, device="cpu", epochs=2
        )
        assert np.isfinite(second.predict(measured(1).programs)).all()

    @pytest.mark.parametrize("damage", ["chapter0/share", "chapter1/whole", "net0"])
    def test_a_file_that_lacks_a_part_is_refused(self, damage: str) -> None:
        arrays, header = loads(of_two(), FORMAT_NOW)
        del arrays[damage]
        with pytest.raises(ValueError, match="not a unified cost model"):
            UnifiedModel.load(dumps(arrays, header))

    def test_a_file_of_the_format_before_is_scored_by_its_one_network(self) -> None:
        arrays, header = loads(of_two(), FORMAT_NOW)
        last = max(name for name in arrays if name.startswith("net"))
        arrays["net"] = arrays.pop(last)
        for name in [n for n in arrays if n.startswith("net0") or n.endswith("/network")]:
            del arrays[name]
        model = UnifiedModel.load(dumps(arrays, header | {FORMAT: "tunefleet-unified/2"}))
        assert model.network.save() == arrays["net"].tobytes()
        assert ordered(model, measured(2, sign=-1.0, seed=5)) > 0.85


class TestPlasticity:
    def training(self, keep: Kept | None = None) -> tuple[Training, list[np.ndarray]]:
        given = measured(1, 40)
        data = DistinctRows.of(given.programs)
        start = initial(intervals(data.distinct, 4), 16, 1, np.random.default_rng(0))
        parameters = TrainingParameters(
            heads=2, loss="lambdarank", error_weight=1.0, dropout=0.0, device="cpu"
        )
        return Training(parameters, start, data, given.labels, 1e-2, keep), groups_of(given.tasks)

    def test_importance_is_the_mean_of_each_lists_squared_gradient(self) -> None:
        training, lists = self.training()
        expected = np.mean(
            [gradient["w_score"].copy() ** 2 for gradient in training.gradients_of_loss(lists)],
            axis=0,
        )
        found = after(training, lists, None, "squared").importance["w_score"]
        np.testing.assert_allclose(expected, found, rtol=1e-5)
        # Squaring the gradient of all lists together is another thing.
        (whole,) = training.gradients_of_loss([np.concatenate(lists)])
        assert not np.allclose(whole["w_score"] ** 2, found, rtol=0.1)

    @pytest.mark.parametrize("method", METHODS)
    def test_importances_of_what_was_learned_add_up(self, method: str) -> None:
        training, lists = self.training()
        start = training.weights()
        training.follow_path()
        training.schedule(3)
        for _ in range(3):
            training.step(lists)
        once = after(training, lists, None, method, training.path, start)
        twice = after(training, lists, once, method, training.path, start)
        assert once.importance.keys() == start.keys() - set(FIXED)
        assert max(float(b.max()) for b in once.importance.values()) > 0
        for name, importance in once.importance.items():
            assert (importance >= 0).all()
            np.testing.assert_allclose(2 * importance, twice.importance[name], rtol=1e-5)

    def test_a_path_that_was_not_followed_is_told(self) -> None:
        training, lists = self.training()
        with pytest.raises(ValueError, match="not recorded"):
            after(training, lists, None, "path")

    def test_held_weights_stay_and_the_others_move(self) -> None:
        training, lists = self.training()
        start = {n: w for n, w in training.weights().items() if n not in FIXED}
        stiffness = {name: np.zeros_like(w) for name, w in start.items()}
        stiffness["w_score"] += 1e6
        held, _ = self.training(Kept(start, stiffness))
        for each in (training, held):
            each.schedule(20)
            for _ in range(20):
                each.step(lists)
        moved, kept = (
            np.abs(each.weights()["w_score"] - start["w_score"]).mean() for each in (training, held)
        )
        assert kept < moved / 2
        assert not np.array_equal(held.weights()["w_rows1"], start["w_rows1"])

    def test_strength_is_relative_to_the_mean_importance(self) -> None:
        importance = {"a": np.array([1.0, 3.0], np.float32)}
        kept = Plasticity({"a": np.zeros(2)}, importance).kept(2.0)
        assert kept is not None
        np.testing.assert_allclose([1.0, 3.0], kept.stiffness["a"])

    @pytest.mark.parametrize(("strength", "importance"), [(0.0, 1.0), (1.0, 0.0)])
    def test_nothing_is_held_where_nothing_matters(
        self, strength: float, importance: float
    ) -> None:
        held = Plasticity({"a": np.zeros(2)}, {"a": np.full(2, importance)})
        assert held.kept(strength) is None


class TestParts:
    def test_a_device_is_known_by_the_numbers_that_tell_it_from_others(self) -> None:
        domains = Domains.of(together(measured(1), measured(2)))
        assert not domains.distance(programs_of(2, 5, seed=3)).any()
        assert domains.distance(programs_of(3, 5, seed=3)).all()

    def test_programs_of_a_task_are_one_list(self) -> None:
        domains = Domains.of(together(measured(1), measured(2)))
        lists = domains.lists(programs_of(1, 30, seed=8))
        expected = [[0, 3], [1, 4], [2, 5]]
        assert expected == sorted(own[:2].tolist() for own in lists)

    def test_a_table_has_what_differs_and_refuses_nothing_shorter(self) -> None:
        programs = [np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 5]], np.float32)]
        found = Table.of(programs)
        np.testing.assert_array_equal([[2, 3, 4], [5, 0, 0]], found.rows(programs))

    def test_parts_hold_every_program_once_and_are_of_about_one_size(self) -> None:
        groups = [np.arange(start, start + 10) for start in range(0, 70, 10)]
        parts = parts_of(groups, 3)
        np.testing.assert_array_equal(np.arange(70), np.sort(np.concatenate(parts)))
        assert max(map(len, parts)) - min(map(len, parts)) <= 10

    @pytest.mark.parametrize("before", [None, measured(2)])
    def test_a_forest_is_what_was_saved(self, before: LabelledPrograms | None) -> None:
        given = measured(1)
        parts = parts_of(groups_of(given.tasks))
        forest = Forest.fit(given.programs, given.labels, parts, 0, before)
        loaded = Forest.of_arrays(forest.arrays())
        test = programs_of(1, 9, seed=6)
        np.testing.assert_array_equal(forest.predict(test), loaded.predict(test))
        rows = forest.rows(test)
        np.testing.assert_array_equal(forest.by_member(rows), loaded.by_member(rows))

    def test_few_programs_say_more_beside_what_was_learned_before(self) -> None:
        few, before, test = measured(1, 12, seed=2), measured(1, seed=3), measured(1, seed=5)
        numbers = np.unique(test.tasks, return_inverse=True)[1]
        alone, beside = (
            Forest.fit(few.programs, few.labels, [], 0, known).predict(test.programs)
            for known in (None, before)
        )
        pca = [metrics.ranking(test.labels, found, numbers).pca for found in (alone, beside)]
        assert pca[1] > pca[0] + 0.02

    def test_new_programs_count_more_than_those_of_before(self) -> None:
        new, before = measured(1, 60, seed=2), measured(1, 60, -1.0, seed=3)
        forest = Forest.fit(new.programs, new.labels, [], 0, before)
        test = measured(1, seed=5)
        numbers = np.unique(test.tasks, return_inverse=True)[1]
        assert metrics.ranking(test.labels, forest.predict(test.programs), numbers).pca > 0.7

    def test_a_sample_has_whole_lists_and_survives_saving(self) -> None:
        sample = Sample.of(measured(1), 40, 20, 0)
        np.testing.assert_array_equal([20, 20], np.bincount(sample.tasks))
        loaded = Sample.of_arrays(sample.arrays())
        np.testing.assert_array_equal(np.stack(sample.programs), np.stack(loaded.programs))
        np.testing.assert_array_equal(sample.labels, loaded.labels)

    def test_a_sample_is_cut_by_whole_lists(self) -> None:
        sample = Sample.of(measured(1), 90, 20, 0)
        cut = sample.at_most(50, 0)
        assert 30 <= len(cut.labels) <= 50
        whole, left = np.bincount(sample.tasks), np.bincount(cut.tasks, minlength=3)
        np.testing.assert_array_equal(left, np.where(left > 0, whole, 0))
        assert sample.at_most(90, 0) is sample

    def test_kept_programs_are_of_other_lists_than_new_ones(self) -> None:
        mixed = Sample.of(measured(1), 10, 5, 0).among(measured(2))
        assert len(mixed.labels) == 100
        assert not {t for t in mixed.tasks[:90]} & {t for t in mixed.tasks[90:]}
