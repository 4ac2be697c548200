from __future__ import annotations

import numpy as np
import pytest

from tunefleet.costmodel import LabelledPrograms
from tunefleet.costmodel._reach import Reach, typical

COLUMNS = 4


def programs_of(count: int, seed: int = 0, start: int = 0) -> list[np.ndarray]:
    """The first row is of the task, the others repeat."""
    generator = np.random.default_rng(seed)
    return [
        np.vstack([np.full(COLUMNS, 9), start + generator.integers(0, 3, (2, COLUMNS))]).astype(
            np.float32
        )
        for _ in range(count)
    ]


def goodness(programs: list[np.ndarray]) -> np.ndarray:
    return np.array([program[1:, 0].sum() for program in programs], float)


def measured(programs: list[np.ndarray], device: str) -> LabelledPrograms:
    labels = (1.0 + goodness(programs)) / (1.0 + goodness(programs).max())
    return LabelledPrograms(programs, labels, [device] * len(programs), [device] * len(programs))


def of_two(start: int, sign: float = 1.0) -> Reach:
    """Two devices; programs of the second are those of the first moved by `start`, which another
    committee member ranks by their goodness of this `sign`."""
    first, second = programs_of(200), programs_of(200, 1, start)
    given = measured(first, "a")
    given = LabelledPrograms(
        [*first, *second],
        np.concatenate([given.labels, measured(second, "b").labels]),
        [*given.tasks, *["b"] * 200],
    )
    parts = [np.arange(200), np.arange(200, 400)]
    told = np.array([sign * goodness([*first, *second])] * 2)
    held = measured(programs_of(30, 2), "a")
    return Reach.of(given, parts, told, held, goodness(list(held.programs)))


class TestTypical:
    def test_extremes_come_last_and_the_middle_first(self) -> None:
        programs = [np.full((2, 2), value, np.float32) for value in (0, 9, 4, 5, 5)]
        found = typical(programs)
        assert {0, 1} == set(np.argsort(found)[:2].tolist())

    def test_programs_that_are_alike_are_all_as_typical(self) -> None:
        np.testing.assert_array_equal(np.zeros(3), typical([np.ones((2, 2), np.float32)] * 3))

    def test_a_number_counts_by_its_deviations_and_not_by_its_size(self) -> None:
        rows = np.random.default_rng(0).normal(size=(20, 1, 2)).astype(np.float32)
        moved = rows * np.array([1, 1000], np.float32)
        np.testing.assert_allclose(typical(list(rows)), typical(list(moved)), rtol=1e-4)


class TestReach:
    def test_rows_that_were_learned_are_familiar_and_the_first_is_not_asked(self) -> None:
        reach = of_two(0)
        known, new = programs_of(1, 5)[0], programs_of(1, 5, 50)[0]
        other_task = known.copy()
        other_task[0] = -3.0
        half = np.vstack([known[:2], new[2:]])
        expected = [1.0, 1.0, 0.5, 0.0]
        assert expected == reach.familiar([known, other_task, half, new]).tolist()

    def test_a_program_without_rows_of_its_own_has_nothing_new(self) -> None:
        assert of_two(0).familiar([np.ones((1, COLUMNS), np.float32)]).tolist() == [1.0]

    def test_what_held_on_devices_left_out_is_expected_of_others(self) -> None:
        assert of_two(0).known > 0.3
        assert of_two(0, sign=-1.0).known == 0.0

    def test_devices_that_have_nothing_in_common_say_nothing_of_what_is_familiar(self) -> None:
        # What is known of more programs of the same devices is all that tells.
        assert of_two(50, sign=-1.0).known > 0.3

    @pytest.mark.parametrize("agreed", [0.0, 1.0])
    def test_programs_that_are_new_are_ordered_by_what_is_typical(self, agreed: float) -> None:
        programs = programs_of(40, 7, 90)
        found = of_two(50).mixed(goodness(programs), programs, agreed)
        np.testing.assert_array_equal(np.argsort(typical(programs)), np.argsort(found))

    def test_programs_that_are_known_are_ordered_by_their_scores(self) -> None:
        programs = programs_of(40, 7)
        scores = np.random.default_rng(0).normal(size=40)
        found = of_two(0).mixed(scores, programs, 1.0)
        assert np.corrcoef(scores, found)[0, 1] > 0.9
        np.testing.assert_allclose([scores.mean(), scores.std()], [found.mean(), found.std()])

    def test_it_is_what_was_saved_and_refuses_what_is_not(self) -> None:
        arrays = of_two(0).arrays()
        np.testing.assert_array_equal(arrays["words"], Reach.of_arrays(arrays).words)
        with pytest.raises(ValueError, match="words"):
            Reach.of_arrays(arrays | {"words": np.zeros(3)})
        with pytest.raises(ValueError, match="sorted"):
            Reach.of_arrays(arrays | {"words": arrays["words"][::-1]})
        with pytest.raises(ValueError, match="pairs"):
            Reach.of_arrays(arrays | {"worth": np.array([0.1, 0.7])})
