"""One design space of a task: fixed instructions and open choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.search.choices import Bools, Category, Choice, Location, Tile, lowered, one_of
from tunefleet.search.limits import Limit

Ints = NDArray[np.int64]

#: Rejection sampling: draws per requested program, and the number of repeats. As few as one program
#: in a hundred may keep the limits.
_DRAWS = 16
_ROUNDS = 32
#: Attempts for a mutation that violates a limit.
_TRIES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """`instructions` are plain JSON [kind, inputs, attributes, outputs], up to postprocessing.

    `choices[i]` holds the options of the sampling instruction at `positions[i]`. Picks are arrays
    (programs, choices) of indices into these options. Programs that violate one of `limits` cannot
    be built; sampling, mutation and crossover avoid them.
    """

    instructions: tuple[Any, ...]
    choices: tuple[Choice, ...]
    positions: tuple[int, ...]
    limits: tuple[Limit, ...] = ()

    def keeps(self, picks: Ints) -> Bools:
        """(programs,) whether each program keeps the limits."""
        kept = np.ones(len(picks), dtype=bool)
        if self.limits and len(picks):
            values = self.values(picks)
            for limit in self.limits:
                kept &= limit.holds(values)
        return kept

    def values(self, picks: Ints) -> list[Ints]:
        """(programs, parts) for each choice: tile factors, the value of a category, a location."""
        return [choice.options[picks[:, i]] for i, choice in enumerate(self.choices)]

    def find(self, decisions: Mapping[int, Any]) -> Ints | None:
        """The picks (choices,) of decisions by instruction; None if one is not an option."""
        picks = [
            choice.find(decisions.get(position))
            for choice, position in zip(self.choices, self.positions, strict=True)
        ]
        return None if None in picks else np.array(picks, dtype=np.int64)

    def decisions(self, picks: Ints) -> dict[int, Any]:
        """The decisions of one program (choices,) by instruction, in the format of traces."""
        return {
            position: choice.decision(int(pick))
            for choice, position, pick in zip(self.choices, self.positions, picks, strict=True)
        }

    def settled(self, picks: Ints) -> Ints:
        """`picks` with each invalid location lowered, as TVM does on replay."""
        settled = picks.copy()
        for i, choice in enumerate(self.choices):
            if isinstance(choice, Location):
                valid = choice.valid(self.values(settled))
                settled[:, i] = lowered(settled[:, i], valid)
        return settled

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        """Sample as TVM does: tiles and valid locations uniformly, categories by probability.

        If too few programs keep the limits, they are repeated; if none does, the result holds
        programs that violate them.
        """
        picks = self._drawn(count, rng)
        kept = self.keeps(picks)
        for _ in range(_ROUNDS):
            missing = np.flatnonzero(~kept)
            if not len(missing):
                return picks
            drawn = self._drawn(_DRAWS * max(len(missing), _DRAWS), rng)
            good = drawn[self.keeps(drawn)][: len(missing)]
            picks[missing[: len(good)]] = good
            kept[missing[: len(good)]] = True
        if kept.any():
            picks[~kept] = picks[rng.choice(np.flatnonzero(kept), size=int((~kept).sum()))]
        return picks

    def _drawn(self, count: int, rng: np.random.Generator) -> Ints:
        picks = np.zeros((count, len(self.choices)), dtype=np.int64)
        for i, choice in enumerate(self.choices):
            match choice:
                case Tile():
                    picks[:, i] = rng.integers(len(choice.options), size=count)
                case Category():
                    picks[:, i] = rng.choice(len(choice.options), count, p=choice.probabilities)
                case Location():
                    picks[:, i] = one_of(choice.valid(self.values(picks)), rng)
        return picks

    def mutate(self, picks: Ints, rng: np.random.Generator) -> Ints:
        """Change one random choice of each program, among those with several options.

        Invalid locations are lowered afterwards. A program is unchanged if no attempt keeps the
        limits.
        """
        if not self.choices or not len(picks):
            return picks
        mutated = self._mutated(picks, rng)
        for _ in range(_TRIES):
            broken = np.flatnonzero(~self.keeps(mutated))
            if not len(broken):
                return mutated
            mutated[broken] = self._mutated(picks[broken], rng)
        return np.where(self.keeps(mutated)[:, None], mutated, picks)

    def _mutated(self, picks: Ints, rng: np.random.Generator) -> Ints:
        values = self.values(picks)
        free = np.zeros(picks.shape, dtype=bool)
        elsewhere = {}
        for i, choice in enumerate(self.choices):
            if isinstance(choice, Location):
                elsewhere[i] = choice.valid(values)
                elsewhere[i][np.arange(len(picks)), picks[:, i]] = False
                free[:, i] = elsewhere[i].any(axis=1)
            else:
                free[:, i] = len(choice.options) > 1
        mutated = picks.copy()
        turn = np.where(free.any(axis=1), one_of(free, rng), -1)
        for i, choice in enumerate(self.choices):
            rows = np.flatnonzero(turn == i)
            if isinstance(choice, Location):
                mutated[rows, i] = one_of(elsewhere[i][rows], rng)
            else:
                mutated[rows, i] = choice.other(picks[rows, i], rng)
        return self.settled(mutated)

    def cross(self, picks: Ints, others: Ints, rng: np.random.Generator) -> Ints:
        """Take each choice from one of the two programs of a row at random; the first program if
        the result violates a limit."""
        crossed = self.settled(np.where(rng.random(picks.shape) < 0.5, picks, others))
        return np.where(self.keeps(crossed)[:, None], crossed, picks)
