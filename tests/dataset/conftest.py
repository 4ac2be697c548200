from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tunefleet.dataset import codecs
from tunefleet.dataset.codecs import auto_scheduler
from tunefleet.dataset.codecs.codec import TellBadLine
from tunefleet.dataset.codecs.rows import read_lines
from tunefleet.dataset.formats import AUTO_SCHEDULER
from tunefleet.dataset.schema import RECORDS

#: Writes text to a file of that name and gives its path.
Log = Callable[..., Path]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    def write(text: str | bytes, name: str = "a.json") -> Path:
        path = tmp_path / name
        content = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return write


def read_all(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The rows of a log, and the line and reason of its bad lines."""
    bad: list[codecs.BadLine] = []
    batches = list(codecs.read(path, on_bad=bad.append, **options))
    assert all(batch.schema.equals(RECORDS, check_metadata=True) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    rows = pa.Table.from_batches(batches, RECORDS).to_pylist()
    return rows, [(line.line, line.reason) for line in bad]


def read_line_by_line(path: Path, device: str, report: TellBadLine) -> Iterator[pa.RecordBatch]:
    """What `AutoScheduler.read` gives, without its short cut."""
    return read_lines(path, AUTO_SCHEDULER, device, auto_scheduler.parse, report)


def loaded(path: Path) -> list[Any]:
    """The values of a file's lines."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
