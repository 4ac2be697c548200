"""What programs take of a device, and sketches whose programs keep its limits."""

from __future__ import annotations

import numpy as np
import pytest

from tunefleet.search.choices import Tile
from tunefleet.search.limits import (
    Aligned,
    Amount,
    AtMost,
    Extent,
    FixedExtent,
    Limit,
    Quotient,
    Sum,
    TileExtent,
)
from tunefleet.search.sketch import Sketch

#: Two programs; their first choice has three parts, their second two.
VALUES = [np.array([[2, 3, 4], [1, 1, 24]]), np.array([[5, 1], [1, 5]])]


@pytest.mark.parametrize(
    ("extent", "expected"),
    [
        (FixedExtent(3), [3]),
        (TileExtent(0, (1, 2)), [12, 24]),
        (TileExtent(0, ()), [1, 1]),
        (Sum(((2, TileExtent(0, (2,))), (-1, TileExtent(1, (1,))))), [7, 51]),
        (Quotient(TileExtent(0, (0, 2)), 3), [3, 8]),
        (AtMost(TileExtent(0, (2,)), 10), [4, 10]),
        (Aligned(TileExtent(0, (2,)), 16, 16, 8), [72, 392]),
        (Aligned(FixedExtent(3), 8, 16, 8), [24]),
    ],
)
def test_indices_take_so_many_values(extent: Extent, expected: list[int]) -> None:
    assert extent.of(VALUES).tolist() == expected


def test_an_amount_is_of_all_combinations_and_limits_add_them() -> None:
    bytes_ = Amount(4, (TileExtent(0, (2,)), TileExtent(1, (0,))))
    assert bytes_.of(VALUES).tolist() == [80, 96]
    assert Limit("shared memory", 0, 90, (bytes_,)).holds(VALUES).tolist() == [True, False]
    assert Limit("shared memory", 0, 181, (bytes_, bytes_)).holds(VALUES).tolist() == [True, False]
    assert Limit("threads", 24, 24, (Amount(1, (TileExtent(0, (2,)),)),)).holds(VALUES)[1]


def sketch(most: int, least: int = 1) -> Sketch:
    """Of one loop of 64 steps in three parts, the last of which is limited."""
    limit = Limit("threads", least, most, (Amount(1, (TileExtent(0, (2,)),)),))
    return Sketch(("made up",), (Tile.of(64, 3, -1),), (0,), (limit,))


def last(programs: Sketch, picks: np.ndarray) -> list[int]:
    return programs.values(picks)[0][:, 2].tolist()


def test_sampled_and_bred_programs_keep_the_limits() -> None:
    rng = np.random.default_rng(0)
    limited = sketch(4)
    picks = limited.sample(200, rng)
    assert set(last(limited, picks)) == {1, 2, 4}
    bred = limited.cross(limited.mutate(picks, rng), limited.sample(200, rng), rng)
    assert set(last(limited, bred)) == {1, 2, 4}
    assert (bred != picks).any()


def test_where_few_programs_keep_the_limits_these_come_more_than_once() -> None:
    picks = sketch(64, least=64).sample(50, np.random.default_rng(0))
    assert set(last(sketch(64), picks)) == {64}


def test_where_no_program_keeps_the_limits_a_search_goes_on() -> None:
    rng = np.random.default_rng(0)
    broken = sketch(0)
    picks = broken.sample(5, rng)
    assert not broken.keeps(picks).any()
    assert broken.mutate(picks, rng).shape == picks.shape


def test_without_limits_nothing_else_is_drawn() -> None:
    """Searches on CPUs are what they were."""
    free = Sketch(("made up",), (Tile.of(64, 3, -1),), (0,))
    first, second = np.random.default_rng(3), np.random.default_rng(3)
    np.testing.assert_array_equal(
        free.sample(9, first)[:, 0], second.integers(len(free.choices[0].options), size=9)
    )
    assert first.integers(1000) == second.integers(1000)
