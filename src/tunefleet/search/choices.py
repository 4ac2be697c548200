"""The options of a sketch's sampling instructions as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """The perfect factorisations of a loop extent.

    `options` is (n, parts), outermost part first. `neighbours` are the options that differ by one
    prime factor moved between two parts: those of option i are
    `neighbours[first[i]:first[i + 1]]`.
    """

    options: Ints
    first: Ints
    neighbours: Ints

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, extent: int, parts: int, innermost: int) -> Tile:
        """`innermost` is the largest factor of the innermost part; -1 is no limit."""
        options = _factorisations(extent, parts)
        if innermost != -1:
            options = options[options[:, -1] <= innermost]
        return cls(options, *_prime_moves(extent, options))

    def find(self, decision: Any) -> int | None:
        """The option index of a trace's decision; None if it is not an option."""
        factors = np.asarray(decision)
        if factors.shape != self.options.shape[1:]:
            return None
        return _only((self.options == factors).all(axis=1))

    def decision(self, option: int) -> Any:
        return self.options[option].tolist()

    def other(self, picks: Ints, rng: np.random.Generator) -> Ints:
        """Another option for each of `picks`: with probability 1/2 a neighbour, else any."""
        count = self.first[picks + 1] - self.first[picks]
        chosen = self.first[picks] + (rng.random(len(picks)) * count).astype(np.int64)
        near = (rng.random(len(picks)) < 0.5) & (count > 0)
        moved = self.neighbours[np.where(near, chosen, 0)] if len(self.neighbours) else picks
        return np.where(near, moved, _any_other(picks, len(self.options), rng))


@dataclass(frozen=True, slots=True, eq=False)
class Category:
    """Values (n, 1) with their probabilities (n,)."""

    options: Ints
    probabilities: NDArray[np.float64]

    def find(self, decision: Any) -> int | None:
        valid = isinstance(decision, int) and 0 <= decision < len(self.options)
        return decision if valid else None

    def decision(self, option: int) -> Any:
        return option

    def other(self, picks: Ints, rng: np.random.Generator) -> Ints:
        return _any_other(picks, len(self.options), rng)


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """Compute location of a block: -2 inlined, -1 at the root, else the index of a consumer's loop.

    `options` is (n, 1), ascending. TVM skips loops of extent one, and stops at an output loop
    inside a reduction loop; it lowers an invalid decision to the next valid one. The valid options
    therefore depend on the tiles: option i is a loop over part `part[i]` of the sketch's choice
    `tile[i]` (-1: no loop, or one of fixed extent), `reduces[i]` marks reduction loops.
    """

    options: Ints
    tile: Ints
    part: Ints
    reduces: Bools

    @classmethod
    def anywhere(cls, locations: Sequence[int]) -> Location:
        """Locations with unknown validity: TVM corrects them on replay."""
        options = np.array(sorted(set(locations)), dtype=np.int64)[:, None]
        always = np.full(len(options), -1)
        return cls(options, always, always, np.zeros(len(options), dtype=bool))

    def find(self, decision: Any) -> int | None:
        return _only(self.options[:, 0] == decision) if isinstance(decision, int) else None

    def decision(self, option: int) -> Any:
        return int(self.options[option, 0])

    def valid(self, factors: Sequence[Ints]) -> Bools:
        """Whether TVM accepts each option: (programs, n), from choices' values (programs, parts).

        Only the values of tiles are used.
        """
        programs = len(factors[0]) if factors else 0
        valid = np.ones((programs, len(self.options)), dtype=bool)
        reduced = np.zeros(programs, dtype=bool)
        stopped = np.zeros(programs, dtype=bool)
        for option, (tile, part, reduces) in enumerate(
            zip(self.tile, self.part, self.reduces, strict=True)
        ):
            long = factors[tile][:, part] > 1 if tile >= 0 else np.True_
            if reduces:
                reduced |= long
            else:
                stopped |= long & reduced
            valid[:, option] = long & ~stopped
        return valid


Choice = Tile | Category | Location


def lowered(picks: Ints, valid: Bools) -> Ints:
    """Each pick lowered to the next valid option, as TVM does for a location."""
    options = np.arange(valid.shape[1])
    taken: Ints = np.where(valid & (options <= picks[:, None]), options, 0).max(axis=1)
    return taken


def one_of(valid: Bools, rng: np.random.Generator) -> Ints:
    """A uniformly drawn valid option per row; 0 if a row has none."""
    keys: Ints = np.where(valid, rng.random(valid.shape), -1.0).argmax(axis=1)
    return keys


def _any_other(picks: Ints, options: int, rng: np.random.Generator) -> Ints:
    if options < 2:
        return picks
    other: Ints = (picks + rng.integers(1, options, len(picks))) % options
    return other


def _only(matches: Bools) -> int | None:
    places = np.flatnonzero(matches)
    return int(places[0]) if len(places) else None


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


@lru_cache(maxsize=4096)
def _factorisations(extent: int, parts: int) -> Ints:
    """Every way to write `extent` as a product of `parts` factors: (n, parts), sorted."""
    if parts == 1:
        return np.array([[extent]], dtype=np.int64)
    blocks = []
    for outer in _divisors(extent):
        inner = _factorisations(extent // outer, parts - 1)
        blocks.append(np.column_stack([np.full(len(inner), outer), inner]))
    return np.concatenate(blocks)


def _prime_moves(extent: int, options: Ints) -> tuple[Ints, Ints]:
    """The neighbours, one prime factor away, of each option (sorted as in `_factorisations`)."""
    divisors = np.array(_divisors(extent))
    primes = [int(d) for d in divisors if d > 1 and len(_divisors(int(d))) == 2]
    parts = options.shape[1]
    digits = len(divisors) ** np.arange(parts - 1, -1, -1)

    def keys(rows: Ints) -> Ints:
        numbers: Ints = np.searchsorted(divisors, rows) @ digits
        return numbers

    known = keys(options)
    sources, targets = [], []
    for prime in primes:
        for giver in range(parts):
            able = np.flatnonzero(options[:, giver] % prime == 0)
            for taker in set(range(parts)) - {giver}:
                moved = options[able]
                moved[:, giver] //= prime
                moved[:, taker] *= prime
                wanted = keys(moved)
                at = np.searchsorted(known, wanted).clip(max=len(known) - 1)
                there = known[at] == wanted
                sources.append(able[there])
                targets.append(at[there])
    if not sources:
        return np.zeros(len(options) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    source, target = np.concatenate(sources), np.concatenate(targets)
    order = np.argsort(source, kind="stable")
    first = np.searchsorted(source[order], np.arange(len(options) + 1))
    return first, target[order]
