"""Imports many logs into one Parquet file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tunefleet.dataset import codecs, files, parquet
from tunefleet.errors import InputError

OnBad = Callable[[codecs.BadLine], None]


@dataclass(frozen=True)
class Logs:
    """Logs with their formats, and the skipped files of folders."""

    found: tuple[tuple[Path, str], ...]
    skipped: tuple[Path, ...] = ()


@dataclass
class ImportCounts:
    """Counts of an import, by format where useful."""

    logs: int = 0
    skipped: int = 0
    records: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    bad_lines: int = 0
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "logs": self.logs,
            "skipped": self.skipped,
            "records": self.records.total(),
            "formats": dict(self.records),
            "failed": self.failed,
            "bad_lines": self.bad_lines,
            "wall_s": self.wall_s,
        }


def find_logs(paths: Iterable[Path], format: str | None = None) -> Logs:
    """The given logs, and the logs in the given folders, each once.

    A given file must be a log; other files in folders are skipped. Raises InputError.
    """
    formats: dict[Path, str] = {}
    skipped: list[Path] = []
    for path in paths:
        if path.is_dir():
            # Hidden files may be drafts of a killed export.
            for file in sorted(path.rglob("[!.]*")):
                if not file.is_file():
                    continue
                name = _format_in_folder(file)
                if name is None or (format is not None and name != format):
                    skipped.append(file)
                else:
                    formats.setdefault(file, name)
        else:
            formats.setdefault(path, format or _format_of(path))
    return Logs(tuple(formats.items()), tuple(skipped))


def _format_of(path: Path) -> str:
    name = codecs.format_of(path)
    if name is None:
        raise InputError(
            f"{path} is not a tuning log of a known format",
            cure=f"give its format: {', '.join(codecs.FORMATS)}",
        )
    return name


def _format_in_folder(path: Path) -> str | None:
    try:
        return codecs.format_of(path)
    except InputError:  # not readable
        return None


def import_logs(
    logs: Logs, device: str, out: Path, *, strict: bool = False, on_bad: OnBad | None = None
) -> ImportCounts:
    """Read logs of one device into a Parquet file, which is published when complete.

    Bad lines are counted and passed to `on_bad`; with `strict` the first raises InputError.
    """
    started = time.perf_counter()
    done = ImportCounts(logs=len(logs.found), skipped=len(logs.skipped))

    def count(bad: codecs.BadLine) -> None:
        done.bad_lines += 1
        if on_bad is not None:
            on_bad(bad)

    with files.Draft(out) as draft:
        parquet.write(_batches(logs.found, device, strict, count, done), draft)
        if not done.records:
            raise InputError(
                f"no records in {len(logs.found)} logs, {done.bad_lines} bad lines",
                cure="give a log of a known format",
            )
    done.wall_s = time.perf_counter() - started
    return done


def _batches(
    logs: Sequence[tuple[Path, str]], device: str, strict: bool, on_bad: OnBad, done: ImportCounts
) -> Iterator[pa.RecordBatch]:
    for path, format in logs:
        for batch in codecs.read(path, device=device, format=format, strict=strict, on_bad=on_bad):
            done.records[format] += batch.num_rows
            done.failed += int((batch.column("error_no").to_numpy() != 0).sum())
            yield batch
