"""The tuning logs that others measured and published, and what is said of them.

They lie beside the repository, in `../shared/data`; a folder's README.md has its counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from common import DATA
from tunefleet.dataset import codecs


@dataclass(frozen=True)
class Log:
    """A log with its format. One that shows none is read as the others of its folder."""

    path: Path
    format: str
    is_told: bool


@dataclass(frozen=True)
class Counts:
    """What a README.md says; None where it says nothing."""

    records: int | None
    ok: int | None
    not_records: int | None


def folders() -> list[str]:
    return sorted(path.name for path in DATA.iterdir() if path.is_dir())


def logs(folder: str) -> list[Log]:
    """All files of a folder but the workloads of databases, which go with their records."""
    paths = [p for p in sorted((DATA / folder).rglob("*.gz")) if "database_workload" not in p.name]
    formats = [codecs.format_of(path) for path in paths]
    common = next(format for format in formats if format is not None)
    return [
        Log(path, format or common, format is not None)
        for path, format in zip(paths, formats, strict=True)
    ]


def counts(folder: str) -> Counts:
    text = (DATA / folder / "README.md").read_text(encoding="utf-8")
    found = re.search(r"records: (\d+), ok \(error 0\): (\d+)", text)
    others = re.search(r"lines that are not records: (\d+)", text)
    if found is None:
        row = re.search(rf"^\| {folder} \|.*\| ([\d,]+) \| .* \|$", _overview(), re.MULTILINE)
        return Counts(int(row[1].replace(",", "")) if row else None, None, None)
    return Counts(int(found[1]), int(found[2]), int(others[1]) if others else None)


def _overview() -> str:
    return (DATA / "README.md").read_text(encoding="utf-8")
