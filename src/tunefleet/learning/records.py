"""Training records: several files as one table that keeps track of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from pathlib import Path

import numpy as np
import pyarrow as pa

from tunefleet.core.identity import UNNAMED
from tunefleet.costmodel.card import RecordsUsed
from tunefleet.dataset import reading
from tunefleet.dataset.codecs import BadLine
from tunefleet.dataset.rows import Codes, Rows, Words
from tunefleet.dataset.schema import RECORDS
from tunefleet.dataset.splits import processor
from tunefleet.errors import InputError
from tunefleet.learning.progress import ReportProgress, paced


@dataclass(frozen=True)
class SourceFile:
    """A file by name and content, with its number of rows in the table."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class Records:
    """A table of `tunefleet.dataset.schema.RECORDS` with the concatenated rows of its files."""

    table: pa.Table
    files: tuple[SourceFile, ...]

    @cached_property
    def rows(self) -> Rows:
        return Rows.of(self.table)

    @cached_property
    def devices(self) -> Words:
        """The device name of each row, with the target's processor if the device ran code for
        several.

        Devices without a name get the target's processor as their name, or UNNAMED.
        """
        device, target = self.rows.device, self.rows.target
        joined = device.codes * len(target.names) + target.codes
        pairs, inverse = np.unique(joined, return_inverse=True)
        measured = [
            (
                device.names[pair // len(target.names)],
                processor(target.names[pair % len(target.names)]),
            )
            for pair in pairs.tolist()
        ]
        several = Counter(name for name, _ in set(measured))
        shown = [_device_name(name, of, several[name] > 1) for name, of in measured]
        names = tuple(dict.fromkeys(shown))
        codes = np.array([names.index(name) for name in shown], np.int64)
        return Words(codes[inverse], names)

    @property
    def formats(self) -> tuple[str, ...]:
        """The tuners that produced the records, sorted."""
        return tuple(sorted(set(self.table.column("format").unique().to_pylist())))

    def used(self, numbers: Codes) -> tuple[RecordsUsed, ...]:
        """The files of these rows and their counts, in the form of a card."""
        per_file = []
        start = 0
        for file in self.files:
            own = numbers[(numbers >= start) & (numbers < start + file.rows)]
            start += file.rows
            per_file.append(
                RecordsUsed(
                    file=file.name,
                    sha256=file.sha256,
                    used=len(own),
                    formats=self._names("format", own),
                    devices=self._names("device", own),
                    targets=self._names("target", own),
                )
            )
        return tuple(per_file)

    def _names(self, column: str, numbers: Codes) -> tuple[str, ...]:
        values = self.table.column(column).take(pa.array(numbers)).unique().to_pylist()
        return tuple(sorted(values))


def _device_name(device: str, of_target: str, several: bool) -> str:
    if not device:
        return of_target or UNNAMED
    return f"{device} ({of_target or 'other'})" if several else device


def read_records(
    paths: Sequence[Path],
    *,
    device: str,
    on_bad: Callable[[BadLine], None],
    progress: ReportProgress,
) -> Records:
    """Files of records, logs and folders of logs as one table.

    A file that is given twice is read once. `device` names the device of logs. Raises InputError if
    there is no record.
    """
    tables: list[pa.Table] = []
    files: list[SourceFile] = []
    by_digest = {file_sha256(path): (path, format) for path, format in reading.find_files(paths)}
    report = paced(progress)
    # Sorted by content: the same files give the same rows, independent of their names.
    for sha256, (path, format) in sorted(by_digest.items()):
        batches = list(reading.read(path, format, device=device, on_bad=on_bad))
        tables.append(pa.Table.from_batches(batches, schema=RECORDS))
        files.append(SourceFile(path.name, sha256, len(tables[-1])))
        report(f"read {len(files):,} of {len(by_digest):,} files")
    count = sum(file.rows for file in files)
    if not count:
        raise InputError(
            f"no records in {', '.join(map(str, paths))}", cure="give Parquet files or logs"
        )
    progress(f"read {count:,} records of {len(files):,} file{'s' * (len(files) > 1)}")
    return Records(pa.concat_tables(tables).unify_dictionaries(), tuple(files))


def file_sha256(path: Path) -> str:
    """The digest that identifies a file on a card. Raises InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", cure="give Parquet files or logs"
        ) from error
