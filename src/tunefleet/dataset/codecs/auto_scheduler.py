"""auto_scheduler (Ansor) logs, v0.2 to v0.6: one JSON object a line.

    {"i": [[workload_key, target, hardware, target_host, layout_rewrite, input_names], [[], steps]],
     "r": [[cost_s, ...], error_no, all_cost_s, timestamp], "v": "v0.6"}

The task array ends early in older versions. Lines that are empty or begin with `#` or a space are
skipped, as TVM does (`src/auto_scheduler/measure_record.cc`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from tunefleet.dataset import files, steps
from tunefleet.dataset.codecs import canonical, strict_json
from tunefleet.dataset.codecs.codec import LineError, TellBadLine, not_written
from tunefleet.dataset.codecs.rows import Row
from tunefleet.dataset.formats import AUTO_SCHEDULER
from tunefleet.errors import InputError

#: Counts seconds since the epoch in a double without loss.
_Timestamp = Annotated[int, Meta(ge=0, le=2**53)]
_ErrorNumber = Annotated[int, Meta(ge=0, le=2**15 - 1)]
_Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Hardware = Annotated[tuple[_Integer, ...], Meta(min_length=8, max_length=8)]
#: After the workload key and the target, what a task array holds, by its name in `extra`.
_MORE: tuple[tuple[str, Any], ...] = (
    ("hardware", _Hardware),
    ("target_host", str),
    ("layout_rewrite", Annotated[int, Meta(ge=0, le=2)]),
    ("input_names", tuple[str, ...]),
)


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    i: tuple[list[Any], tuple[Annotated[list[Any], Meta(max_length=0)], list[list[Any]]]]
    r: tuple[tuple[float, ...], _ErrorNumber, float, _Timestamp]
    v: Literal["v0.2", "v0.3", "v0.4", "v0.5", "v0.6"]


class AutoScheduler:
    """Reads and writes auto_scheduler logs."""

    name = AUTO_SCHEDULER

    def sniff(self, path: Path, head: bytes) -> bool:
        return re.search(rb'^\{[^\n]*"i"\s*:\s*\[\s*\[', head, re.MULTILINE) is not None

    def read(self, path: Path, device: str, report: TellBadLine) -> Iterator[pa.RecordBatch]:
        reader = canonical.Reader(str(path), device, parse)
        for first, lines in files.line_chunks(path):
            batch = reader.batch(first, lines, report)
            if batch.num_rows:
                yield batch

    def write(self, batches: Iterable[pa.RecordBatch], path: Path) -> int:
        count = 0
        with files.Draft(path) as draft, files.open_output(draft) as out:
            for batch in batches:
                try:
                    lines = _lines(batch)
                except (ValueError, TypeError, LookupError, AttributeError) as error:
                    raise not_written(AUTO_SCHEDULER, error) from error
                out.write("".join(lines).encode())
                count += len(lines)
        return count


def parse(number: int, line: bytes) -> Row:
    """One line, whatever its spaces; raises LineError."""
    try:
        value = msgspec.convert(strict_json.loads(line), _Line)
        target, workload, extra = _task(value.i[0])
        written = tuple(canonical_step(strict_json.dumps(step)) for step in value.i[1][1])
    except msgspec.ValidationError as error:
        raise LineError(f"not a record: {error}") from error
    costs, error_no, all_cost, timestamp = value.r
    if not all(math.isfinite(number) for number in (*costs, all_cost)):
        raise LineError("a number is out of range")
    return Row(number, value.v, target, workload, written, costs, error_no, all_cost,
               float(timestamp), extra)  # fmt: skip


def canonical_step(text: str | bytes) -> str:
    """The text of a step as it stands in the column; raises LineError."""
    try:
        return steps.normal(text)
    except InputError as error:
        raise LineError(str(error)) from error


def _task(items: list[Any]) -> tuple[str, str, str]:
    if not 2 <= len(items) <= 2 + len(_MORE):
        raise LineError(f"a task of {len(items)} items, not 2 to {2 + len(_MORE)}")
    workload, target = msgspec.convert(items[:2], tuple[str, str])
    extra = {
        name: msgspec.convert(item, kind)
        for item, (name, kind) in zip(items[2:], _MORE, strict=False)
    }
    return target, workload, strict_json.dumps(extra)


def _lines(batch: pa.RecordBatch) -> list[str]:
    """The lines of a batch, as TVM spaces them."""
    column = {name: batch.column(name) for name in batch.schema.names}
    values = column["steps"].values
    spaced = [_spaced_step(text) for text in values.dictionary.to_pylist()]
    indices = values.indices.to_pylist()
    ends = column["steps"].offsets.to_pylist()
    programs = (", ".join([spaced[i] for i in indices[start:end]]) for start, end in pairwise(ends))
    names = ("workload", "target", "extra", "costs_s", "error_no", "all_cost_s", "timestamp",
             "version")  # fmt: skip
    rows = zip(programs, *(column[name].to_pylist() for name in names), strict=True)
    return [_line(*row) for row in rows]


def _line(
    program: str,
    workload: str,
    target: str,
    extra: str,
    costs: list[float],
    error_no: int,
    all_cost: float,
    timestamp: float,
    version: str,
) -> str:
    task = _task_text(workload, target, extra)
    result = f"[{costs!r}, {error_no}, {all_cost!r}, {int(timestamp)}]"
    return f'{{"i": [[{task}], [[], [{program}]]], "r": {result}, "v": "{version}"}}\n'


@lru_cache(maxsize=1 << 16)
def _spaced_step(text: str) -> str:
    return json.dumps(json.loads(text), ensure_ascii=False)


@lru_cache(maxsize=1 << 12)
def _task_text(workload: str, target: str, extra: str) -> str:
    more = json.loads(extra)
    items = [workload, target, *(more[name] for name, _ in _MORE if name in more)]
    return json.dumps(items, ensure_ascii=False)[1:-1]
