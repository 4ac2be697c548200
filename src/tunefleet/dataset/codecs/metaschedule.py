"""MetaSchedule's JSON database: two files in one folder, a JSON array a line.

    database_tuning_record.json  [workload_index, [[instructions, decisions], [run_s, ...], target,
                                 args_info]]
    database_workload.json       [structural hash, the module as base64]

An instruction, `[kind, inputs, attributes, outputs]`, is a step; its decision is the fifth item.
Other names around `database_tuning_record` and `database_workload` must be the same in both. Where
the second file is missing, a workload is called by its index and its arguments.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from tunefleet.dataset import files
from tunefleet.dataset.codecs import strict_json
from tunefleet.dataset.codecs.codec import LineError, TellBadLine, not_written
from tunefleet.dataset.codecs.rows import Row, is_comment, read_lines
from tunefleet.dataset.formats import METASCHEDULE
from tunefleet.dataset.primitives import UNKNOWN_ERROR
from tunefleet.errors import InputError

RECORDS_NAME = "database_tuning_record"
WORKLOADS_NAME = "database_workload"
#: Seconds that stand for a failure in TVM's add_to_database.cc.
_FAILED_S = 1e9
_NAMELESS = "repair it: without it, no record can be told whose it is"
#: Rows that are Python objects at once.
_ROWS = 64

_Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Instruction = tuple[str, list[Any], list[Any], list[Any]]
_Trace = tuple[list[_Instruction], list[tuple[_Index, Any]]]
_Line = tuple[_Index, tuple[_Trace, list[float] | None, Any, Any]]
_Workloads = dict[int, tuple[str, str]]


class MetaSchedule:
    """Reads and writes MetaSchedule's JSON databases."""

    name = METASCHEDULE

    def sniff(self, path: Path, head: bytes) -> bool:
        return re.search(rb"^\[\s*\d+\s*,\s*\[\s*\[\s*\[", head, re.MULTILINE) is not None

    def read(self, path: Path, device: str, report: TellBadLine) -> Iterator[pa.RecordBatch]:
        workloads = _read_workloads(path)

        def parse_line(number: int, line: bytes) -> Row:
            return parse(number, line, workloads)

        return read_lines(path, METASCHEDULE, device, parse_line, report)

    def write(self, batches: Iterable[pa.RecordBatch], path: Path) -> int:
        return _Database(path).write(batches)


def workloads_of(path: Path) -> Path | None:
    """The file of workloads beside a file of tuning records, if it is there."""
    if RECORDS_NAME not in path.name:
        return None
    file = path.with_name(path.name.replace(RECORDS_NAME, WORKLOADS_NAME))
    return file if file.is_file() else None


def parse(number: int, line: bytes, workloads: _Workloads | None) -> Row:
    """One line of tuning records; raises LineError."""
    loaded = strict_json.loads(line)
    try:
        index, (trace, run_s, target, args_info) = msgspec.convert(loaded, _Line)
    except msgspec.ValidationError as error:
        raise LineError(f"not a record: {error}") from error
    costs = run_s or []
    if not all(map(math.isfinite, costs)):
        raise LineError("a number is out of range")
    extra = {"workload_index": index, "args_info": args_info}
    if run_s is None:
        extra["run_secs"] = None
    definition: str | None = None
    if workloads is None:
        workload = strict_json.dumps([f"workload {index}", args_info])
    elif index in workloads:
        workload, definition = workloads[index]
    else:
        raise LineError(f"workload {index} is not in the file of workloads")
    # The log says no more of a failure than that it was one.
    failed = not costs or max(costs) >= _FAILED_S
    return Row(number, "", strict_json.dumps(target), workload, _steps(*trace), costs,
               UNKNOWN_ERROR if failed else 0, None, None, strict_json.dumps(extra),
               definition)  # fmt: skip


def steps_of(trace: str) -> list[str]:
    """The steps of a schedule trace in TVM's JSON: instructions and decisions. Raises LineError."""
    try:
        return _steps(*msgspec.convert(strict_json.loads(trace.encode()), _Trace))
    except msgspec.ValidationError as error:
        raise LineError(f"not a trace: {error}") from error


def _steps(instructions: list[_Instruction], decisions: list[tuple[int, Any]]) -> list[str]:
    taken = dict(decisions)
    if [*taken] != sorted(index for index, _ in decisions):
        raise LineError("not a record: decisions are not in the order of instructions")
    if taken and max(taken) >= len(instructions):
        raise LineError(f"not a record: a decision for instruction {max(taken)}, which is none")
    return [
        strict_json.dumps([*instruction, taken[i]] if i in taken else instruction)
        for i, instruction in enumerate(instructions)
    ]


def _read_workloads(path: Path) -> _Workloads | None:
    """By index, structural hash and module; None without a file of them. Other lines count: a
    line's number is its index. The last one may be cut, as a kill leaves it."""
    file = workloads_of(path)
    if file is None:
        return None
    workloads: _Workloads = {}
    cut: InputError | None = None
    for number, line in _whole_lines(file):
        if cut is not None:
            raise cut
        place = f"{file}:{number}: not a workload"
        try:
            workloads[len(workloads)] = msgspec.convert(strict_json.loads(line), tuple[str, str])
        except LineError as error:
            cut = InputError(f"{place}: {error}", cure=_NAMELESS)
        except msgspec.ValidationError as error:
            raise InputError(f"{place}: {error}", cure=_NAMELESS) from error
    return workloads


def _whole_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a file, comments left out, as far as it can be read."""
    try:
        for first, lines in files.line_chunks(file):
            for number, line in enumerate(lines, first):
                if not is_comment(line):
                    yield number, line
    except files.BrokenFileError:  # records of what is lost are told one by one
        return


class _Database:
    """Writes both files; `path` is a folder or the file of tuning records in one."""

    def __init__(self, path: Path) -> None:
        self._records, self._workloads = _output_paths(path)
        self._by_index: dict[int, tuple[str, str | None]] = {}
        self._index: dict[tuple[str, str | None], int] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        count = 0
        with files.Draft(self._records) as records:
            with files.open_output(records) as out:
                for row in _rows(batches):
                    try:
                        out.write(self._line(row))
                    except (ValueError, TypeError, LookupError, AttributeError) as error:
                        raise not_written(METASCHEDULE, error) from error
                    count += 1
            if self._has_modules():
                self._close_gaps(records)
                self._write_workloads()
            else:
                # One that is left from before would give the records other workloads.
                self._workloads.unlink(missing_ok=True)
        return count

    def _has_modules(self) -> bool:
        known = [definition is not None for _, definition in self._by_index.values()]
        if any(known) and not all(known):
            raise InputError(
                "some of the records come with their workloads and some without",
                cure="export each database by itself",
            )
        return any(known)

    def _write_workloads(self) -> None:
        with files.Draft(self._workloads) as draft, files.open_output(draft) as out:
            for index in sorted(self._by_index):
                out.write((strict_json.dumps(self._by_index[index]) + "\n").encode())

    def _line(self, row: dict[str, Any]) -> bytes:
        extra = json.loads(row["extra"])
        instructions, decisions = [], []
        for i, text in enumerate(row["steps"]):
            step = json.loads(text)
            instructions.append(step[:4])
            if len(step) == 5:
                decisions.append([i, step[4]])
        index = self._index_of((row["workload"], row["definition"]), extra["workload_index"])
        run_s = extra["run_secs"] if "run_secs" in extra else row["costs_s"]
        target = json.loads(row["target"])
        value = [index, [[instructions, decisions], run_s, target, extra["args_info"]]]
        return (strict_json.dumps(value) + "\n").encode()

    def _index_of(self, workload: tuple[str, str | None], wanted: int) -> int:
        """The index the workload had, unless another database's has it."""
        if workload not in self._index:
            if wanted in self._by_index:
                wanted = max(self._by_index) + 1
            self._index[workload] = wanted
            self._by_index[wanted] = workload
        return self._index[workload]

    def _close_gaps(self, records: Path) -> None:
        """Number the workloads by their lines, where some had no record and are gone."""
        renumbered = {old: new for new, old in enumerate(sorted(self._by_index))}
        if all(old == new for old, new in renumbered.items()):
            return
        with files.Draft(records) as again, files.open_output(again) as out:
            for _, lines in files.line_chunks(records):
                for line in lines:
                    index, comma, rest = line[1:].partition(b",")
                    out.write(b"[%d" % renumbered[int(index)] + comma + rest + b"\n")


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows of batches, a few at a time: in Python, each has its own copy of the module."""
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            yield from batch.slice(start, _ROWS).to_pylist()


def _output_paths(path: Path) -> tuple[Path, Path]:
    if path.is_dir() or not path.suffix:
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder {path}: {error.strerror}", cure="choose another"
            ) from error
        path = path / f"{RECORDS_NAME}.json"
    elif RECORDS_NAME not in path.name:
        raise InputError(
            f"{path} does not name a file of tuning records",
            cure=f"give a folder, or a name with {RECORDS_NAME} in it",
        )
    return path, path.with_name(path.name.replace(RECORDS_NAME, WORKLOADS_NAME))
