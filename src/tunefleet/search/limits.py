"""What a program takes of a device, from its decisions alone, and what it may take at most.

A GPU gives a block of threads so much shared memory and so many threads. Most random tilings want
more: they are seen here, thousands at a time, and never become a program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tunefleet.search.choices import Bools, Ints

#: The most of a limit that has only a least.
UNLIMITED = 2**62

#: What the choices of programs decide: for each choice (programs, parts).
Values = Sequence[Ints]


class Extent(Protocol):
    """How many values an index takes: 1 for one that stays."""

    def of(self, values: Values) -> Ints:
        """(programs,) of the programs, or (1,) where it is the same for all."""


@dataclass(frozen=True, slots=True)
class FixedExtent:
    """An index that takes as many values in every program."""

    extent: int

    def of(self, values: Values) -> Ints:
        return np.array([self.extent], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TileExtent:
    """A loop over some parts of the tile that is choice number `choice`."""

    choice: int
    parts: tuple[int, ...]

    def of(self, values: Values) -> Ints:
        steps: Ints = values[self.choice][:, list(self.parts)].prod(axis=1)
        return steps


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of indices that move on their own, each times its coefficient."""

    terms: tuple[tuple[int, Extent], ...]

    def of(self, values: Values) -> Ints:
        total = np.ones(1, dtype=np.int64)
        for coefficient, extent in self.terms:
            total = total + abs(coefficient) * (extent.of(values) - 1)
        return total


@dataclass(frozen=True, slots=True)
class Quotient:
    """An index divided by a constant and rounded down, where its values begin at a multiple."""

    extent: Extent
    divisor: int

    def of(self, values: Values) -> Ints:
        return (self.extent.of(values) - 1) // self.divisor + 1


@dataclass(frozen=True, slots=True)
class AtMost:
    """An index that never takes more than so many values: of a remainder, or in a dimension."""

    extent: Extent
    most: int

    def of(self, values: Values) -> Ints:
        return np.minimum(self.extent.of(values), self.most)


@dataclass(frozen=True, slots=True)
class Aligned:
    """Numbers in a row of `each` for every value, made more until they are `offset` beyond a
    multiple of `factor`: rows of shared memory that begin in different banks."""

    extent: Extent
    each: int
    factor: int
    offset: int

    def of(self, values: Values) -> Ints:
        own = self.each * self.extent.of(values)
        return own + (self.offset - own) % self.factor


@dataclass(frozen=True, slots=True)
class Amount:
    """`each`, of every combination of what the indices take: bytes of an element, say."""

    each: int
    extents: tuple[Extent, ...]

    def of(self, values: Values) -> Ints:
        amounts: Ints = math.prod(
            (extent.of(values) for extent in self.extents), start=np.array([self.each])
        )
        return amounts


@dataclass(frozen=True, slots=True)
class Limit:
    """What the amounts come to is from `least` to `most`, both included."""

    name: str
    least: int
    most: int
    amounts: tuple[Amount, ...]

    def holds(self, values: Values) -> Bools:
        """(programs,) whether a program keeps it; of one without choices (1,)."""
        total = sum((amount.of(values) for amount in self.amounts), np.zeros(1, dtype=np.int64))
        kept: Bools = (total >= self.least) & (total <= self.most)
        return kept
