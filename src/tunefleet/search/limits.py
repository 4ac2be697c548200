"""Resource limits of programs, evaluated from decisions alone.

A GPU limits the shared memory and the threads of a thread block. Most random tilings exceed these
limits; they are rejected here, thousands at a time, before a program is created.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tunefleet.search.choices import Bools, Ints

#: The upper bound of a limit that has only a lower one.
UNLIMITED = 2**62

#: The values of the choices of programs: (programs, parts) for each choice.
Values = Sequence[Ints]


class Extent(Protocol):
    """The number of values of an index: 1 for a constant."""

    def of(self, values: Values) -> Ints:
        """(programs,), or (1,) if it is equal for all programs."""


@dataclass(frozen=True, slots=True)
class FixedExtent:
    """An index with the same extent in every program."""

    extent: int

    def of(self, values: Values) -> Ints:
        return np.array([self.extent], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TileExtent:
    """A loop over some parts of the tile with the choice index `choice`."""

    choice: int
    parts: tuple[int, ...]

    def of(self, values: Values) -> Ints:
        steps: Ints = values[self.choice][:, list(self.parts)].prod(axis=1)
        return steps


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of independent indices, each with a coefficient."""

    terms: tuple[tuple[int, Extent], ...]

    def of(self, values: Values) -> Ints:
        total = np.ones(1, dtype=np.int64)
        for coefficient, extent in self.terms:
            total = total + abs(coefficient) * (extent.of(values) - 1)
        return total


@dataclass(frozen=True, slots=True)
class Quotient:
    """Floor division of an index by a constant; its values start at a multiple."""

    extent: Extent
    divisor: int

    def of(self, values: Values) -> Ints:
        return (self.extent.of(values) - 1) // self.divisor + 1


@dataclass(frozen=True, slots=True)
class AtMost:
    """An index with a bounded number of values: a remainder, or an index into a dimension."""

    extent: Extent
    most: int

    def of(self, values: Values) -> Ints:
        return np.minimum(self.extent.of(values), self.most)


@dataclass(frozen=True, slots=True)
class Aligned:
    """`each` elements per value, padded until the count is `offset` above a multiple of `factor`:
    rows of shared memory that start in different banks."""

    extent: Extent
    each: int
    factor: int
    offset: int

    def of(self, values: Values) -> Ints:
        own = self.each * self.extent.of(values)
        return own + (self.offset - own) % self.factor


@dataclass(frozen=True, slots=True)
class Amount:
    """`each` (such as the bytes of an element) times the product of the extents of the indices."""

    each: int
    extents: tuple[Extent, ...]

    def of(self, values: Values) -> Ints:
        amounts: Ints = math.prod(
            (extent.of(values) for extent in self.extents), start=np.array([self.each])
        )
        return amounts


@dataclass(frozen=True, slots=True)
class Limit:
    """The total of the amounts lies between `least` and `most`, inclusive."""

    name: str
    least: int
    most: int
    amounts: tuple[Amount, ...]

    def holds(self, values: Values) -> Bools:
        """(programs,) whether each program keeps the limit; (1,) without choices."""
        total = sum((amount.of(values) for amount in self.amounts), np.zeros(1, dtype=np.int64))
        kept: Bools = (total >= self.least) & (total <= self.most)
        return kept
