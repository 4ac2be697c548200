"""The seam to a log format, and what every format says of a line that it cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from tunefleet.errors import InputError


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line, counted from 1, that is no record of its file's format."""

    source: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.reason}"


#: Told of every bad line, its number and the reason, in the order of the file. May raise.
TellBadLine = Callable[[int, str], None]


class LineError(ValueError):
    """A line is no record; the text says why."""


def not_written(format: str, error: Exception) -> InputError:
    """For a record that says that it is of a format and holds something else: a Parquet file may
    have any text in its columns."""
    return InputError(
        f"a record is none of {format}: {type(error).__name__}: {error}",
        cure="export what `tunefleet dataset import` wrote",
    )


class Codec(Protocol):
    """Reads the logs of one format. Holds no state: may be used from several threads."""

    name: str

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file is of this format, by its name and its first bytes."""

    def read(self, path: Path, device: str, report: TellBadLine) -> Iterator[pa.RecordBatch]:
        """The records of a file as batches of `schema.RECORDS`, in the order of its lines.

        Bad lines go to `report`, and reading goes on behind them. Memory is bounded by a batch, not
        by the file. Raises InputError when the file cannot be opened, BrokenFileError when it
        cannot be read to its end.
        """


@runtime_checkable
class WritingCodec(Codec, Protocol):
    """A codec that also writes what it has read, loss-free."""

    def write(self, batches: Iterable[pa.RecordBatch], path: Path) -> int:
        """Write records of this format, and return how many; replaces what `path` names."""
