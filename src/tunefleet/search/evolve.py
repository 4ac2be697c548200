"""Evolutionary search over decisions: scores thousands of programs without lowering any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunefleet.search.decisions import DecisionSpace
from tunefleet.search.population import Population

Score = Callable[[Population], NDArray[np.float64]]

#: The probability of a parent halves every this share of the population, by rank.
_HALF = 0.05
#: Share of random programs in each generation, so that a search leaves its starting region.
_FRESH = 0.1
#: The probability of crossover; a child is mutated otherwise, or in addition.
_CROSSED = 0.3


@dataclass(frozen=True, slots=True)
class Effort:
    population: int
    generations: int
    mutate_probability: float


@dataclass(frozen=True)
class Ranked:
    """Distinct programs with their scores, best first."""

    population: Population
    scores: NDArray[np.float64]


def evolve(
    space: DecisionSpace,
    start: Population,
    score: Score,
    effort: Effort,
    rng: np.random.Generator,
) -> Ranked:
    """All programs scored by an evolution from `start` and random programs."""
    fresh = space.sample(max(effort.population - len(start), effort.population // 2), rng)
    ranked = _ranked([Population.concat([start, fresh]).distinct()], [], score)
    for _ in range(effort.generations):
        children = _children(space, ranked, effort, rng)
        new = children.not_in(ranked.population)
        if not new.any():
            break
        ranked = _ranked([children.take(new)], [ranked], score)
    return ranked


def _ranked(new: Sequence[Population], before: Sequence[Ranked], score: Score) -> Ranked:
    population = Population.concat([*(b.population for b in before), *new])
    scores = np.concatenate([*(b.scores for b in before), *(score(n) for n in new)])
    order = np.argsort(-scores, kind="stable")
    return Ranked(population.take(order), scores[order])


def _children(
    space: DecisionSpace, ranked: Ranked, effort: Effort, rng: np.random.Generator
) -> Population:
    fresh = int(effort.population * _FRESH)
    count = effort.population - fresh
    rank = np.arange(min(len(ranked.scores), effort.population))
    chance = 0.5 ** (rank / (_HALF * effort.population))
    drawn = rng.choice(len(rank), size=(2, count), p=chance / chance.sum())
    parents, others = (ranked.population.take(numbers) for numbers in drawn)
    crossed = rng.random(count) < _CROSSED
    children = Population.concat(
        [
            space.cross(parents.take(crossed), others, rng),
            parents.take(~crossed),
        ]
    )
    mutated = rng.random(count) < effort.mutate_probability
    return Population.concat(
        [
            children.take(~mutated),
            space.mutate(children.take(mutated), rng),
            space.sample(fresh, rng),
        ]
    ).distinct()
