"""Records from files of any kind, Parquet or logs, as whoever looks at them is given both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from tunefleet.dataset import codecs, parquet
from tunefleet.dataset.importing import find_logs

#: What stands for the format of a file of records.
PARQUET = "parquet"


def find_files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Files of records and logs with their formats; folders are searched for logs.

    Raises InputError for a file that is neither.
    """
    for path in paths:
        if parquet.is_parquet(path):
            yield path, PARQUET
        else:
            yield from find_logs([path]).found


def read(
    path: Path, format: str, *, device: str, on_bad: Callable[[codecs.BadLine], None]
) -> Iterator[pa.RecordBatch]:
    """The records of one of them; `device` is what a log was measured on, Parquet says it."""
    if format == PARQUET:
        return parquet.read(path)
    return codecs.read(path, device=device, format=format, on_bad=on_bad)
