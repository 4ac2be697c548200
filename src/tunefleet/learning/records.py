"""The records that models learn from: several files as one table that knows its files."""

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
from tunefleet.learning.progress import TellProgress, paced


@dataclass(frozen=True)
class SourceFile:
    """A file that was read, by name and content, and how many rows of the table are its."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class Records:
    """A table of `tunefleet.dataset.schema.RECORDS`, the rows of its files one after another."""

    table: pa.Table
    files: tuple[SourceFile, ...]

    @cached_property
    def rows(self) -> Rows:
        return Rows.of(self.table)

    @cached_property
    def devices(self) -> Words:
        """The device of each row by name, with the processor where it ran code for several.

        Without a name it is called by its target's processor, or UNNAMED.
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
        """The tuners whose programs these are, sorted."""
        return tuple(sorted(set(self.table.column("format").unique().to_pylist())))

    def used(self, numbers: Codes) -> tuple[RecordsUsed, ...]:
        """Which rows of which file these are, as a card tells."""
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
    progress: TellProgress,
) -> Records:
    """Files of records, logs and folders of logs as one table.

    A file that is named twice is read once. `device` is what logs were measured on. Raises
    InputError where nothing is a record.
    """
    tables: list[pa.Table] = []
    files: list[SourceFile] = []
    by_digest = {file_sha256(path): (path, format) for path, format in reading.find_files(paths)}
    tell = paced(progress)
    # In the order of their content: the same files are the same rows, however they are named.
    for sha256, (path, format) in sorted(by_digest.items()):
        batches = list(reading.read(path, format, device=device, on_bad=on_bad))
        tables.append(pa.Table.from_batches(batches, schema=RECORDS))
        files.append(SourceFile(path.name, sha256, len(tables[-1])))
        tell(f"read {len(files):,} of {len(by_digest):,} files")
    count = sum(file.rows for file in files)
    if not count:
        raise InputError(
            f"no records in {', '.join(map(str, paths))}", cure="give Parquet files or logs"
        )
    progress(f"read {count:,} records of {len(files):,} file{'s' * (len(files) > 1)}")
    return Records(pa.concat_tables(tables).unify_dictionaries(), tuple(files))


def file_sha256(path: Path) -> str:
    """What a card knows a file by. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", cure="give Parquet files or logs"
        ) from error
