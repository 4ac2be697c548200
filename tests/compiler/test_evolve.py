from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

SIZE = 64


@pytest.fixture(scope="module")
def space(conv_task: Any, target: Any) -> Any:
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.search.decisions import DecisionSpace

    return DecisionSpace.of(sketches_of(conv_task.program, target))


def likes(space: Any) -> Any:
    """A score of decisions: how near they are to one program."""
    wanted = space.sample(1, np.random.default_rng(9)).picks[0]
    return lambda population: -np.abs(population.picks - wanted).sum(axis=1).astype(float)


def run(space: Any, generations: int, start: Any = None, seed: int = 0) -> Any:
    from tunefleet.search.evolve import Effort, evolve
    from tunefleet.search.population import Population

    effort = Effort(SIZE, generations, 0.85)
    begin = Population.empty(space.choices) if start is None else start
    return evolve(space, begin, likes(space), effort, np.random.default_rng(seed))


def test_what_was_scored_comes_back_once_and_best_first(space: Any) -> None:
    found = run(space, 3)
    assert len(found.population) == len(found.population.distinct()) > SIZE
    np.testing.assert_array_equal(-np.sort(-found.scores), found.scores)
    np.testing.assert_array_equal(likes(space)(found.population), found.scores)


def test_generations_find_better_programs(space: Any) -> None:
    sampled, evolved = (
        np.mean([run(space, generations, seed=seed).scores[0] for seed in range(5)])
        for generations in (0, 6)
    )
    assert evolved > sampled


def test_it_starts_from_what_is_given(space: Any) -> None:
    start = space.sample(3, np.random.default_rng(5))
    assert not start.not_in(run(space, 1, start).population).any()


def test_it_depends_on_its_seed_alone(space: Any) -> None:
    assert run(space, 2).population.keys() == run(space, 2).population.keys()
    assert run(space, 2).population.keys() != run(space, 2, seed=1).population.keys()
