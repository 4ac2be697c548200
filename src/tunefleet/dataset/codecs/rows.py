"""Rows, one record each, and the batch that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tunefleet.dataset import files
from tunefleet.dataset.codecs import strict_json
from tunefleet.dataset.codecs.codec import LineError, TellBadLine
from tunefleet.dataset.schema import RECORDS, WORD


class Row(NamedTuple):
    """What a line says; the fields are those of `schema.RECORDS`."""

    line: int
    version: str
    target: str
    workload: str
    steps: Sequence[str]
    costs_s: Sequence[float]
    error_no: int
    all_cost_s: float | None
    timestamp: float | None
    extra: str
    definition: str | None = None


#: Parses a whole line: its number and its text. Raises LineError.
Parse = Callable[[int, bytes], Row]


def is_comment(line: bytes) -> bool:
    """Whether TVM skips the line."""
    return not line or line[0] in b"# " or line == b"\r"


def read_lines(
    path: Path, format: str, device: str, parse: Parse, report: TellBadLine
) -> Iterator[pa.RecordBatch]:
    """The batches of a file whose lines are parsed one by one."""
    for first, lines in files.line_chunks(path):
        rows = list(parsed(enumerate(lines, first), parse, report))
        if rows:
            yield batch_of(rows, format, str(path), device)


def parsed(lines: Iterable[tuple[int, bytes]], parse: Parse, report: TellBadLine) -> Iterator[Row]:
    """The rows of numbered lines; comments are skipped and bad lines reported."""
    for number, line in lines:
        if is_comment(line):
            continue
        try:
            yield parse(number, line)
        except LineError as error:
            report(number, str(error))
        except RecursionError:
            report(number, strict_json.TOO_DEEP)


def batch_of(rows: Sequence[Row], format: str, source: str, device: str) -> pa.RecordBatch:
    """The batch of what was read from one file."""
    steps = pa.array([row.steps for row in rows], pa.list_(pa.utf8()))
    columns = {
        "source": constant(source, len(rows)),
        "line": pa.array([row.line for row in rows], pa.int64()),
        "format": constant(format, len(rows)),
        "version": words([row.version for row in rows]),
        "device": constant(device, len(rows)),
        "target": words([row.target for row in rows]),
        "workload": words([row.workload for row in rows]),
        "steps": pa.ListArray.from_arrays(steps.offsets, steps.values.dictionary_encode()),
        "costs_s": pa.array([row.costs_s for row in rows], pa.list_(pa.float64())),
        "error_no": pa.array([row.error_no for row in rows], pa.int16()),
        "all_cost_s": pa.array([row.all_cost_s for row in rows], pa.float64()),
        "timestamp": pa.array([row.timestamp for row in rows], pa.float64()),
        "extra": words([row.extra for row in rows]),
        "definition": words([row.definition for row in rows]),
    }
    return pa.record_batch([columns[name] for name in RECORDS.names], schema=RECORDS)


def words(values: Sequence[str | None]) -> pa.DictionaryArray:
    """A dictionary-encoded column; long words are never held once for each row."""
    codes: dict[str | None, int] = {None: -1}
    code = [codes.setdefault(value, len(codes) - 1) for value in values]
    indices = pa.array([None if index < 0 else index for index in code], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array([*codes][1:], pa.utf8()))


def constant(value: str | None, count: int) -> pa.DictionaryArray:
    """A column that holds the same everywhere."""
    if value is None:
        return pa.nulls(count, WORD)
    indices = pa.array([0], pa.int32()).take(pa.repeat(pa.scalar(0, pa.int32()), count))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.utf8()))
