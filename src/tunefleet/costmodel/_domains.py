"""Which programs belong together, told by their first rows: those of a device, those of a task.

Schemas that tell of the task and the device do so in the first row of a program, whose numbers are
then the same in all programs of the device or task. Which columns these are is learned from
programs whose device and task are known, so that no schema has to be known here. Of a schema that
tells of neither, all programs are of one list and of one device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._base import LabelledPrograms, ProgramRows
from tunefleet.costmodel._lists import groups_of

Array = NDArray[np.float32]
Codes = NDArray[np.int64]

#: Places of a number that are compared: features are logarithms, worked out in more than one way.
PLACES = 4


@dataclass(frozen=True)
class Domains:
    """`signatures` (devices, columns) are the numbers of each device's first rows, NaN where they
    are not the same in all of them; `of_task` the columns that are the same within every task."""

    signatures: Array
    of_task: Codes

    @classmethod
    def of(cls, given: LabelledPrograms) -> Self:
        first = first_rows(given.programs)
        devices = groups_of(given.devices or [""] * len(first))
        signatures = np.stack([_equal(first[group]) for group in devices])
        told = ~np.isnan(signatures).any(axis=0)
        telling = told & (signatures != signatures[0]).any(axis=0)
        if telling.any():
            # Of several devices: what is the same in all programs of each, and not in all of them.
            signatures[:, ~telling] = np.nan
        tasks = [group for group in groups_of(given.tasks) if len(group) > 1]
        varies = np.zeros(first.shape[1], bool)
        for group in tasks:
            varies |= np.isnan(_equal(first[group]))
        return cls(signatures, np.flatnonzero(~varies) if tasks else np.zeros(0, np.int64))

    def distance(self, programs: Sequence[ProgramRows]) -> NDArray[np.float64]:
        """(programs,): the share of the nearest device's numbers that are others; 0 where a device
        is known."""
        first = np.round(first_rows(programs), PLACES)
        nearest = np.ones(len(first))
        for signature in self.signatures:
            told = ~np.isnan(signature)
            if not told.any():
                return np.zeros(len(first))
            nearest = np.minimum(nearest, (first[:, told] != signature[told]).mean(axis=1))
        return nearest

    def lists(self, programs: Sequence[ProgramRows]) -> list[Codes]:
        """Numbers of the programs of each task."""
        first = np.round(first_rows(programs)[:, self.of_task], PLACES)
        return groups_of([row.tobytes().hex() for row in np.ascontiguousarray(first)])

    def devices(self, programs: Sequence[ProgramRows]) -> list[Codes]:
        """Numbers of the programs of each device, as far as it can be told from others."""
        told = np.flatnonzero(~np.isnan(self.signatures).any(axis=0))
        first = np.round(first_rows(programs)[:, np.intersect1d(told, self.of_task)], PLACES)
        return groups_of([row.tobytes().hex() for row in np.ascontiguousarray(first)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As they are saved."""
        return {"signatures": self.signatures, "of_task": self.of_task}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], columns: int) -> Self:
        """What `arrays` gave. Raises KeyError and ValueError for anything else."""
        signatures, of_task = arrays["signatures"], arrays["of_task"]
        whole = signatures.dtype == np.float32 and of_task.dtype == np.int64
        if not whole or signatures.ndim != 2 or of_task.ndim != 1 or not len(signatures):
            raise ValueError("domains of another form")
        if signatures.shape[1] != columns or not ((of_task >= 0) & (of_task < columns)).all():
            raise ValueError("domains of other columns")
        return cls(signatures, of_task)


def first_rows(programs: Sequence[ProgramRows]) -> Array:
    """(programs, columns)."""
    return np.stack([program[0] for program in programs]).astype(np.float32, copy=False)


def _equal(rows: Array) -> Array:
    """(columns,): what all rows say, NaN where they differ."""
    rounded = np.round(rows, PLACES)
    said: Array = np.where((rounded == rounded[0]).all(axis=0), rounded[0], np.nan)
    return said.astype(np.float32)
