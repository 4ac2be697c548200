"""Reads records from Parquet files and logs alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.importing import find_logs

#: The format name of Parquet files.
PARQUET = "parquet"


def find_files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Parquet files and logs with their formats; folders are searched for logs.

    Raises InputError for other files.
    """
    for path in paths:
        if parquet.is_parquet(path):
            yield path, PARQUET
        else:
            yield from find_logs([path]).found


def read(
    path: Path, format: str, *, device: str, on_bad: Callable[[codecs.BadLine], None]
) -> Iterator[pa.RecordBatch]:
    """The records of a file; `device` is the device of a log (Parquet files contain it)."""
    if format == PARQUET:
        return parquet.read(path)
    return codecs.read(path, device=device, format=format, on_bad=on_bad)
