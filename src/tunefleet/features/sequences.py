"""A program as the sequence of its primitives, without a compiler: schema `sequences/1`.

Each primitive is a row of 28 numbers:

    0-13    one-hot of the 14 kinds of auto_scheduler, in the order of `KINDS`
    14-17   any other kind: one of 4 by a hash of its name
    18-27   its first 10 arguments, lists flattened in place: a number x as sign(x) log2(1 + |x|),
            a name as a hash in 1..16, "name$number" as both, nothing as 0

What a primitive becomes is worked out once for each distinct text and then gathered. A sequence is
cropped or padded with rows of zeros. Source: Zhai et al., TLP, ASPLOS 2023, arXiv 2211.03578, with
numbers compressed (TLP takes them as they are) and names hashed (TLP counts them per data set).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunefleet.features.words import array_of, numbers_in

SCHEMA = "sequences/1"

KINDS = ("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF")
OTHER_KINDS = 4
ARGUMENTS = 10
WIDTH = len(KINDS) + OTHER_KINDS + ARGUMENTS

#: TLP's crop for GPUs; it crops programs of CPUs to 25.
LONGEST = 40


Codes = NDArray[np.int64]
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Sequences:
    """Programs as primitives: program i has the next `lengths[i]` of `codes`, rows of `distinct`.

    Create it with `of`; `padded`, `flat` and `ragged` are the inputs of cost models.
    """

    distinct: Array
    codes: Codes
    lengths: Codes

    def __post_init__(self) -> None:
        if int(self.lengths.sum()) != len(self.codes):
            raise ValueError(f"lengths sum to {self.lengths.sum()}, not {len(self.codes)}")

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, texts: Sequence[str], codes: Codes, lengths: Codes) -> Sequences:
        """From primitives as indices into distinct JSON texts.

        Raises ValueError for a text that is not a JSON array.
        """
        distinct = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in zip(distinct, texts, strict=True):
            _write(row, text)
        return cls(distinct, codes, lengths)

    def padded(self, longest: int = LONGEST) -> Array:
        """(programs, longest, WIDTH): cropped, or padded with zeros."""
        starts = np.cumsum(self.lengths) - self.lengths
        place = np.arange(longest)
        inside = place < self.lengths[:, None]
        numbers = np.where(inside, starts[:, None] + place, 0)
        # A row of zeros at the end serves as padding.
        codes = np.full(numbers.shape, len(self.distinct))
        codes[inside] = self.codes[numbers[inside]]
        rows: Array = np.concatenate([self.distinct, np.zeros((1, WIDTH), np.float32)])[codes]
        return rows

    def flat(self, longest: int = LONGEST) -> list[Array]:
        """Programs of shape (1, longest * WIDTH), for models that sum over rows."""
        return list(self.padded(longest).reshape(len(self), 1, longest * WIDTH))

    def ragged(self, longest: int = LONGEST) -> list[Array]:
        """Programs of shape (primitives, WIDTH), cropped; one row of zeros without primitives."""
        ends = np.cumsum(self.lengths)
        rows = self.distinct[self.codes]
        nothing = np.zeros((1, WIDTH), np.float32)
        return [
            rows[end - length : end - length + min(length, longest)] if length else nothing
            for end, length in zip(ends.tolist(), self.lengths.tolist(), strict=True)
        ]

    def projected(self, columns: int = 16, longest: int = LONGEST, seed: int = 0) -> Array:
        """(programs, columns): random projections of `padded`, which roughly preserve distances."""
        generator = np.random.default_rng(seed)
        directions = generator.normal(size=(longest, WIDTH, columns)) / np.sqrt(columns)
        projections = np.zeros((len(self), columns), np.float32)
        starts = np.cumsum(self.lengths) - self.lengths
        for place, direction in enumerate(directions.astype(np.float32)):
            inside = self.lengths > place
            projections[inside] += (self.distinct @ direction)[self.codes[starts[inside] + place]]
        return projections


def _write(row: Array, text: str) -> None:
    value = array_of(text)
    kind = value[0] if value and isinstance(value[0], str) else ""
    row[_slot(kind)] = 1.0
    arguments = numbers_in(value[1:] if kind else value)
    for column, number in zip(range(WIDTH - ARGUMENTS, WIDTH), arguments, strict=False):
        row[column] = number


def _slot(kind: str) -> int:
    if kind in KINDS:
        return KINDS.index(kind)
    return len(KINDS) + zlib.crc32(kind.encode(errors="replace")) % OTHER_KINDS
