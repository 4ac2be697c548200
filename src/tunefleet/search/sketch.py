"""One design space of a task: fixed instructions, and what is left to choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.search.choices import Bools, Category, Choice, Location, Tile, lowered, one_of
from tunefleet.search.limits import Limit

Ints = NDArray[np.int64]

#: Of programs that keep the limits, which may be one of a hundred: draws for each that is wanted,
#: and how often they are repeated.
_DRAWS = 16
_ROUNDS = 32
#: How often a mutation is tried that breaks a limit.
_TRIES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """`instructions` are plain JSON [kind, inputs, attributes, outputs], up to postprocessing.

    `choices[i]` is what the sampling instruction at `positions[i]` decides. Picks are arrays
    (programs, choices) of indices into the choices' options. Programs that break one of `limits`
    cannot be built: they are neither sampled nor bred.
    """

    instructions: tuple[Any, ...]
    choices: tuple[Choice, ...]
    positions: tuple[int, ...]
    limits: tuple[Limit, ...] = ()

    def keeps(self, picks: Ints) -> Bools:
        """(programs,) which keep the limits."""
        kept = np.ones(len(picks), dtype=bool)
        if self.limits and len(picks):
            values = self.values(picks)
            for limit in self.limits:
                kept &= limit.holds(values)
        return kept

    def values(self, picks: Ints) -> list[Ints]:
        """For each choice (programs, parts): tile factors, the value of a category, a location."""
        return [choice.options[picks[:, i]] for i, choice in enumerate(self.choices)]

    def find(self, decisions: Mapping[int, Any]) -> Ints | None:
        """The picks (choices,) of decisions by instruction; None when one is not an option."""
        picks = [
            choice.find(decisions.get(position))
            for choice, position in zip(self.choices, self.positions, strict=True)
        ]
        return None if None in picks else np.array(picks, dtype=np.int64)

    def decisions(self, picks: Ints) -> dict[int, Any]:
        """The decisions of one program (choices,) by instruction, as a trace has them."""
        return {
            position: choice.decision(int(pick))
            for choice, position, pick in zip(self.choices, self.positions, picks, strict=True)
        }

    def settled(self, picks: Ints) -> Ints:
        """`picks` with each location that the tiles rule out lowered, as TVM does on replay."""
        settled = picks.copy()
        for i, choice in enumerate(self.choices):
            if isinstance(choice, Location):
                valid = choice.valid(self.values(settled))
                settled[:, i] = lowered(settled[:, i], valid)
        return settled

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
        """As TVM samples: tiles and valid locations uniformly, categories by probability.

        Where programs that keep the limits are so rare that fewer are found than are wanted, they
        come more than once; where none is found, what breaks them comes instead.
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
        """One choice of each program, any of those that can change, takes another option.

        A location that the new tiles rule out is lowered besides. A program of which no try keeps
        the limits stays as it is.
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
        """Each choice from one of the two programs of a row, whichever the coin says; the first of
        them where that breaks a limit."""
        crossed = self.settled(np.where(rng.random(picks.shape) < 0.5, picks, others))
        return np.where(self.keeps(crossed)[:, None], crossed, picks)
