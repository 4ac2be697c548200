"""One design space of a task: fixed instructions, and what is left to choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.search.choices import Category, Choice, Location, Tile, lowered, one_of

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """`instructions` are plain JSON [kind, inputs, attributes, outputs], up to postprocessing.

    `choices[i]` is what the sampling instruction at `positions[i]` decides. Picks are arrays
    (programs, choices) of indices into the choices' options.
    """

    instructions: tuple[Any, ...]
    choices: tuple[Choice, ...]
    positions: tuple[int, ...]

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
        """As TVM samples: tiles and valid locations uniformly, categories by probability."""
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

        A location that the new tiles rule out is lowered besides.
        """
        if not self.choices or not len(picks):
            return picks
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
        """Each choice from one of the two programs of a row, whichever the coin says."""
        return self.settled(np.where(rng.random(picks.shape) < 0.5, picks, others))
