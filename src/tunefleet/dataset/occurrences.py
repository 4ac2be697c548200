"""Counts kinds of primitives per task, batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Occurrences:
    """Counts of each kind of primitive of one format, by task, and distinct sequences of kinds.

    `kinds` may grow between calls of `add`, but not change.
    """

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds
        self.total = np.zeros((0, 0), np.int64)
        self.records = np.zeros((0, 0), np.int64)
        self.most = np.zeros((0, 0), np.int64)
        self._sequences: dict[int, tuple[int, int]] = {}

    def add(
        self, tasks: Array, devices: Array, lengths: Array, counts: Array, kinds: Array
    ) -> None:
        """Add records with their task and device indices: `counts` of each kind (records x kinds),
        the length of each record, and a hash of its sequence of kinds."""
        order = np.argsort(tasks, kind="stable")
        present, starts = np.unique(tasks[order], return_index=True)
        self._grow(int(present.max(initial=-1)) + 1)
        grouped = counts[order]
        self.total[present] += np.add.reduceat(grouped, starts, axis=0)
        self.records[present] += np.add.reduceat(grouped > 0, starts, axis=0, dtype=np.int64)
        most = np.maximum.reduceat(grouped, starts, axis=0)
        self.most[present] = np.maximum(self.most[present], most)
        # Sequences are counted per device; few are distinct, so a set is sufficient.
        marks = kinds ^ (devices.astype(np.uint64) << np.uint64(48))
        distinct, first = np.unique(marks, return_index=True)
        for mark, row in zip(distinct.tolist(), first.tolist(), strict=True):
            self._sequences.setdefault(mark, (int(devices[row]), int(lengths[row])))

    def sequences(self, device: int) -> list[int]:
        """The length of each distinct sequence of kinds on a device."""
        return [length for owner, length in self._sequences.values() if owner == device]

    def _grow(self, tasks: int) -> None:
        shape = (max(tasks, self.total.shape[0]), len(self.kinds))
        for name in ("total", "records", "most"):
            old = getattr(self, name)
            if old.shape == shape:
                continue
            # Double the capacity, so that it is rarely copied.
            grown = np.zeros((max(shape[0], 2 * old.shape[0]), shape[1]), np.int64)
            grown[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, grown)
