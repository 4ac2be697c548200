"""What an instruction can decide, without the compiler."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.search.choices import Category, Location, Tile, lowered
from tunefleet.search.population import Population
from tunefleet.search.sketch import Sketch


@given(st.integers(1, 400), st.integers(2, 4), st.sampled_from([-1, 1, 8, 64]))
def test_tiles_are_all_perfect_factorisations(extent: int, parts: int, innermost: int) -> None:
    options = Tile.of(extent, parts, innermost).options
    assert (options.prod(axis=1) == extent).all()
    assert len(options) == len(np.unique(options, axis=0))
    if innermost == -1:
        assert len(options) == math.prod(
            math.comb(power + parts - 1, parts - 1) for power in _powers(extent)
        )
    else:
        assert options[:, -1].max() <= innermost


def _powers(n: int) -> list[int]:
    powers: dict[int, int] = {}
    for p in range(2, n + 1):
        while n % p == 0:
            powers[p] = powers.get(p, 0) + 1
            n //= p
    return list(powers.values())


@given(st.integers(1, 200), st.integers(2, 4))
def test_neighbours_of_a_tile_differ_by_one_prime_factor(extent: int, parts: int) -> None:
    tile = Tile.of(extent, parts, 8)
    for i, option in enumerate(tile.options):
        for other in tile.options[tile.neighbours[tile.first[i] : tile.first[i + 1]]]:
            giver, taker = np.flatnonzero(option > other), np.flatnonzero(other > option)
            assert (len(giver), len(taker)) == (1, 1)
            factor = option[giver[0]] // other[giver[0]]
            assert sum(_powers(int(factor))) == 1


@given(st.integers(1, 100), st.integers(0, 9))
def test_another_tile_is_another(extent: int, seed: int) -> None:
    tile = Tile.of(extent, 3, 16)
    picks = np.arange(len(tile.options))
    other = tile.other(picks, np.random.default_rng(seed))
    assert ((other != picks) | (len(picks) == 1)).all()
    assert ((other >= 0) & (other < len(picks))).all()


@pytest.mark.parametrize("decision", [None, [2, 3], [1, 1, 12], [12], "12"])
def test_what_is_no_option_of_a_tile_is_not_found(decision: object) -> None:
    assert Tile.of(12, 3, 8).find(decision) is None


def test_an_option_is_found_by_its_decision() -> None:
    tile = Tile.of(12, 3, 8)
    assert list(range(len(tile.options))) == [
        tile.find(tile.decision(i)) for i in range(len(tile.options))
    ]


def test_locations_pass_over_loops_of_one_step_and_stop_inside_the_reduction() -> None:
    # Two loops of the output, one of the reduction, one more of the output.
    location = Location(
        np.array([[-1], [0], [1], [2], [3]]),
        np.array([-1, 0, 1, 2, 0]),
        np.array([0, 0, 0, 0, 1]),
        np.array([False, False, False, True, False]),
    )
    factors = [
        np.array([[4, 2], [1, 8]]),
        np.array([[1], [2]]),
        np.array([[3], [1]]),
    ]
    valid = location.valid(factors)
    assert valid.tolist() == [[True, True, False, True, False], [True, False, True, False, True]]
    assert lowered(np.array([4, 3]), valid).tolist() == [3, 2]


def sketch() -> Sketch:
    choices = (
        Tile.of(64, 4, 64),
        Tile.of(7, 2, 64),
        Tile.of(1, 4, 64),
        Category(np.array([[0], [16], [64]]), np.array([0.5, 0.25, 0.25])),
        Location(
            np.array([[-2], [-1], [0], [1]]),
            np.array([-1, -1, 0, 1]),
            np.array([0, 0, 0, 0]),
            np.array([False, False, False, True]),
        ),
    )
    return Sketch((), choices, (3, 5, 7, 9, 11))


def test_categories_come_by_probability_and_tiles_uniformly() -> None:
    picks = sketch().sample(20_000, np.random.default_rng(0))
    assert np.bincount(picks[:, 3]) / 20_000 == pytest.approx([0.5, 0.25, 0.25], abs=0.02)
    shares = np.bincount(picks[:, 0], minlength=84) / 20_000
    assert shares == pytest.approx(np.full(84, 1 / 84), abs=0.005)


def test_a_mutation_changes_one_decision() -> None:
    rng = np.random.default_rng(1)
    picks = sketch().sample(500, rng)
    changed = sketch().mutate(picks, rng) != picks
    # A location that the new tile rules out may move along.
    assert (changed[:, :4].sum(axis=1) <= 1).all()
    assert (changed[:, :4].any(axis=1) | changed[:, 4]).all()
    assert not changed[:, 2].any()


def test_a_child_has_each_decision_from_a_parent() -> None:
    rng = np.random.default_rng(1)
    a, b = sketch().sample(300, rng), sketch().sample(300, rng)
    child = sketch().cross(a, b, rng)
    assert ((child == a) | (child == b))[:, :4].all()
    assert 0.3 < (child == a)[:, 0].mean() < 0.7


def test_picks_survive_their_decisions() -> None:
    for picks in sketch().sample(50, np.random.default_rng(2)):
        found = sketch().find(sketch().decisions(picks))
        assert found is not None
        assert found.tolist() == picks.tolist()


def test_distinct_keeps_the_first_of_equal_programs() -> None:
    population = Population(
        np.array([1, 0, 1, 1], dtype=np.int32),
        np.array([[5, 2], [5, -1], [5, 2], [5, 3]], dtype=np.int32),
    )
    found = population.distinct()
    assert found.sketch.tolist() == [1, 0, 1]
    assert found.picks.tolist() == [[5, 2], [5, -1], [5, 3]]
    assert len(Population.concat([found, Population.empty(2)])) == 3
    assert len(Population.empty(2).distinct()) == 0


def test_a_population_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="disagree"):
        Population(np.zeros(2, dtype=np.int32), np.zeros((3, 1), dtype=np.int32))
