"""Distinct rows of many programs: primitives repeat, so each is encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import ProgramRows, stack


@dataclass(frozen=True)
class DistinctRows:
    """Programs as indices of distinct rows; those of program i start at `starts[i]`."""

    distinct: NDArray[np.float32]
    row: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, programs: Sequence[ProgramRows]) -> DistinctRows:
        rows, starts = stack(programs)
        # Sorting one number per row is faster than sorting rows; in practice different rows never
        # have the same 64 bits of a random projection.
        key = rows.astype(np.float64) @ np.random.default_rng(0).normal(size=rows.shape[1])
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return cls(rows[first], inverse, starts, np.diff(np.append(starts, len(rows))))

    def of_programs(self, chosen: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        """The distinct rows of these programs, their row indices, and the start of each program."""
        sizes = self.sizes[chosen]
        offsets = np.cumsum(sizes) - sizes
        place = np.arange(int(sizes.sum())) - np.repeat(offsets, sizes)
        used, local = np.unique(
            self.row[np.repeat(self.starts[chosen], sizes) + place], return_inverse=True
        )
        return self.distinct[used], local, offsets

    def padded(self, chosen: NDArray[np.int64]) -> Padded:
        """The same as a table, padded with the program's first row, and masked."""
        sizes = self.sizes[chosen]
        place = np.arange(int(sizes.max()))
        inside = place < sizes[:, None]
        numbers = self.row[self.starts[chosen][:, None] + np.where(inside, place, 0)]
        # Few rows: marking the used ones is ten times faster than sorting.
        used = np.zeros(len(self.distinct), bool)
        used[numbers.ravel()] = True
        local = np.cumsum(used) - 1
        return Padded(self.distinct[used], local[numbers], inside)


@dataclass(frozen=True)
class Padded:
    """`local` (programs, rows) indexes `distinct` (rows, columns) where `inside` is true."""

    distinct: NDArray[np.float32]
    local: NDArray[np.int64]
    inside: NDArray[np.bool_]
