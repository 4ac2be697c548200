"""Groups programs by device and by task, using their first rows.

Schemas with task and device features have them in the first row of a program, where they are equal
for all programs of the device or task. The columns are learned from programs with known device and
task, so this module depends on no schema. With a schema without such features, all programs are in
one list and on one device.
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

#: Decimals that are compared: features are logarithms, computed in more than one way.
PLACES = 4


@dataclass(frozen=True)
class Domains:
    """`signatures` (devices, columns) are the constant features of each device's first rows, NaN
    where they vary; `of_task` are the columns that are constant within every task."""

    signatures: Array
    of_task: Codes

    @classmethod
    def of(cls, given: LabelledPrograms) -> Self:
        first = first_rows(given.programs)
        devices = groups_of(given.devices or [""] * len(first))
        signatures = np.stack([_equal(first[group]) for group in devices])
        constant = ~np.isnan(signatures).any(axis=0)
        distinguishing = constant & (signatures != signatures[0]).any(axis=0)
        if distinguishing.any():
            # With several devices: constant within each device, but different between them.
            signatures[:, ~distinguishing] = np.nan
        tasks = [group for group in groups_of(given.tasks) if len(group) > 1]
        varies = np.zeros(first.shape[1], bool)
        for group in tasks:
            varies |= np.isnan(_equal(first[group]))
        return cls(signatures, np.flatnonzero(~varies) if tasks else np.zeros(0, np.int64))

    def distance(self, programs: Sequence[ProgramRows]) -> NDArray[np.float64]:
        """(programs,): the share of differing features to the nearest device; 0 for a known
        device."""
        first = np.round(first_rows(programs), PLACES)
        nearest = np.ones(len(first))
        for signature in self.signatures:
            constant = ~np.isnan(signature)
            if not constant.any():
                return np.zeros(len(first))
            nearest = np.minimum(nearest, (first[:, constant] != signature[constant]).mean(axis=1))
        return nearest

    def lists(self, programs: Sequence[ProgramRows]) -> list[Codes]:
        """The indices of the programs of each task."""
        first = np.round(first_rows(programs)[:, self.of_task], PLACES)
        return groups_of([row.tobytes().hex() for row in np.ascontiguousarray(first)])

    def devices(self, programs: Sequence[ProgramRows]) -> list[Codes]:
        """Numbers of the programs of each device, as far as they can be distinguished."""
        constant = np.flatnonzero(~np.isnan(self.signatures).any(axis=0))
        first = np.round(first_rows(programs)[:, np.intersect1d(constant, self.of_task)], PLACES)
        return groups_of([row.tobytes().hex() for row in np.ascontiguousarray(first)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays in a saved file."""
        return {"signatures": self.signatures, "of_task": self.of_task}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], columns: int) -> Self:
        """The inverse of `arrays`. Raises KeyError and ValueError for other arrays."""
        signatures, of_task = arrays["signatures"], arrays["of_task"]
        whole = signatures.dtype == np.float32 and of_task.dtype == np.int64
        if not whole or signatures.ndim != 2 or of_task.ndim != 1 or not len(signatures):
            raise ValueError("domains of another shape")
        if signatures.shape[1] != columns or not ((of_task >= 0) & (of_task < columns)).all():
            raise ValueError("domains with other columns")
        return cls(signatures, of_task)


def first_rows(programs: Sequence[ProgramRows]) -> Array:
    """(programs, columns)."""
    return np.stack([program[0] for program in programs]).astype(np.float32, copy=False)


def _equal(rows: Array) -> Array:
    """(columns,): the common value of all rows, NaN where they differ."""
    rounded = np.round(rows, PLACES)
    said: Array = np.where((rounded == rounded[0]).all(axis=0), rounded[0], np.nan)
    return said.astype(np.float32)
