"""Reads and writes records in Parquet, in batches or as one table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from tunefleet.dataset.schema import BATCH_ROWS, RECORDS
from tunefleet.errors import InputError
from tunefleet.system.files import check_regular
from tunefleet.system.parsing import parsed

#: Rows per row group: one group per small log would double the size of the file.
GROUP_ROWS = 1 << 16
#: Memory limit of a row group: it reduces the rows only if almost all words are distinct.
GROUP_BYTES = 24 << 20
#: Large enough for all words of a row group: steps that are only partly dictionary-encoded cannot
#: be read.
_DICTIONARY_BYTES = 1 << 30
#: The columns that Arrow reads as dictionaries; a list's values have a path.
WORDS = [
    "source", "format", "version", "device", "target", "workload", "steps.list.item", "extra",
    "definition",
]  # fmt: skip
#: The cure for files that tunefleet did not write.
IMPORT = "give a file that `tunefleet dataset import` wrote"


class Writer:
    """Writes batches to one file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        try:
            self._writer = pq.ParquetWriter(
                path,
                RECORDS,
                compression="zstd",
                use_dictionary=WORDS,
                dictionary_pagesize_limit=_DICTIONARY_BYTES,
                # Keep the schema's own names of list elements.
                use_compliant_nested_type=False,
                column_encoding={"line": "DELTA_BINARY_PACKED"},
                # Statistics of steps are useless and would cost as much as all the rest.
                write_statistics=["device", "error_no", "timestamp"],
            )
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror or error}", cure="choose another path"
            ) from error

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._write_group()
        finally:
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch of `schema.RECORDS`."""
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._held:
            group = pa.Table.from_batches(self._held).unify_dictionaries().combine_chunks()
            self._writer.write_table(group, row_group_size=len(group) or None)
            self._held, self._held_rows, self._held_bytes = [], 0, 0


def write(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    """Write batches of `schema.RECORDS` to a file and return the number of rows."""
    with Writer(path) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.rows


def read(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The records of a file, or some columns of them, in batches.

    Raises InputError for files that are not `tunefleet-records/1`.
    """
    for group in _groups(path, columns):
        yield from group.to_batches(BATCH_ROWS)


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """All records of a file as one table, with one dictionary per column."""
    groups = list(_groups(path, columns))
    if not groups:
        return RECORDS.empty_table().select(columns or RECORDS.names)
    return pa.concat_tables(groups).unify_dictionaries()


def is_parquet(path: Path) -> bool:
    """Whether a file has Parquet's magic bytes. Raises InputError for a pipe."""
    if path.is_dir():
        return False
    check_regular(path)
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def _groups(path: Path, columns: list[str] | None) -> Iterator[pa.Table]:
    """The row groups, streamed by `dataset.parquet_parser`."""
    check_regular(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", cure=IMPORT) from error
    arguments = [os.fspath(path), *(columns or ())]
    parser = "tunefleet.dataset.parquet_parser"
    with parsed(parser, arguments, what=os.fspath(path), size=size, cure=IMPORT) as stream:
        while stream.peek(1):
            with pa.ipc.open_stream(stream) as group:
                yield group.read_all()
