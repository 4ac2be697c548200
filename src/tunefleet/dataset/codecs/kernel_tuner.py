"""Kernel Tuner: its cache files, and the T4 results of the FAIR autotuning schema.

Both are one JSON object each, `{..., "cache": {"16,1": {...}, ...}}` and `{..., "results": [{...},
...]}`; their configurations are decoded one after another. A parameter with its value is a step. A
cache file names kernel and problem size; T4 names neither, there the parameters are the workload.
T1 describes what is to be tuned and holds no record. Errors have no numbers: auto_scheduler's are
used.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tunefleet.dataset import files
from tunefleet.dataset.codecs import strict_json
from tunefleet.dataset.codecs.codec import LineError, TellBadLine
from tunefleet.dataset.codecs.rows import Row, batch_of
from tunefleet.dataset.formats import KERNEL_TUNER
from tunefleet.dataset.primitives import UNKNOWN_ERROR
from tunefleet.dataset.schema import BATCH_ROWS

#: auto_scheduler's numbers of what Kernel Tuner says in words; anything else is an unknown error.
ERRORS = {
    "correct": 0, "constraints": 1, "compile": 2, "runtime": 4, "correctness": 5, "timeout": 7,
    "InvalidConfig": 1, "CompilationFailedConfig": 2, "RuntimeFailedConfig": 4,
}  # fmt: skip
#: What versions before 0.4 wrote for a configuration that failed.
_FAILED_MS = 1e20
_PER_SECOND = {"miliseconds": 1e3, "milliseconds": 1e3, "ms": 1e3, "seconds": 1.0, "s": 1.0,
            "microseconds": 1e6, "us": 1e6}  # fmt: skip
#: A configuration is far shorter: where none ends in so much text, none will.
_LONGEST = 1 << 20
_START = re.compile(r'"(cache)"\s*:\s*\{|"(results)"\s*:\s*\[')
_KEY = re.compile(r'\s*,?\s*(?:"(?:[^"\\]|\\.)*"\s*:)?\s*')


class _Entry(msgspec.Struct, frozen=True):
    """A configuration in a cache file: beside these, the parameters."""

    time: float | str
    times: tuple[float, ...] | None = None
    compile_time: float | None = None
    benchmark_time: float | None = None
    timestamp: str | None = None


class _Times(msgspec.Struct, frozen=True):
    runtimes: tuple[float, ...] = ()


class _Result(msgspec.Struct, frozen=True):
    """A configuration in a T4 file."""

    configuration: dict[str, Any]
    invalidity: str
    times: _Times = _Times()
    timestamp: str | None = None


class KernelTuner:
    """Reads Kernel Tuner's cache files and T4 results."""

    name = KERNEL_TUNER

    def sniff(self, path: Path, head: bytes) -> bool:
        return b'"tune_params_keys"' in head or (
            head.lstrip()[:1] == b"{" and re.search(rb'"results"\s*:\s*\[', head) is not None
        )

    def read(self, path: Path, device: str, report: TellBadLine) -> Iterator[pa.RecordBatch]:
        rows: list[Row] = []
        broken: files.BrokenFileError | None = None
        try:
            for number, header, value in _configurations(path):
                try:
                    rows.append(header.row(number, value))
                except (msgspec.ValidationError, ValueError, RecursionError) as error:
                    report(number, f"not a configuration: {error}")
                if len(rows) == BATCH_ROWS:
                    yield batch_of(rows, KERNEL_TUNER, str(path), device)
                    rows = []
        except files.BrokenFileError as error:
            broken = error
        if rows:
            yield batch_of(rows, KERNEL_TUNER, str(path), device)
        if broken is not None:
            raise broken


class _CacheHeader(msgspec.Struct, frozen=True):
    """What a cache file says of all its configurations."""

    tune_params_keys: tuple[str, ...]
    kernel_name: Any = None
    problem_size: Any = None
    device_name: Any = ""

    def row(self, number: int, value: Any) -> Row:
        entry = msgspec.convert(value, _Entry)
        names = self.tune_params_keys
        missing = [name for name in names if name not in value]
        if missing:
            raise LineError(f"not a configuration: the parameter {missing[0]} is missing")
        error_no = 0
        costs: tuple[float, ...] = ()
        if isinstance(entry.time, str):
            error_no = ERRORS.get(entry.time, UNKNOWN_ERROR)
        elif not math.isfinite(entry.time):
            raise LineError("a number is out of range")
        elif entry.time >= _FAILED_MS:
            error_no = UNKNOWN_ERROR
        else:
            costs = entry.times if entry.times is not None else (entry.time,)
        all_cost = None
        if entry.compile_time is not None and entry.benchmark_time is not None:
            all_cost = (entry.compile_time + entry.benchmark_time) / 1e3
        workload = [self.kernel_name, self.problem_size]
        extra = {"device_name": self.device_name}
        return _row(number, "cache", workload, {name: value[name] for name in names},
                    [cost / 1e3 for cost in costs], error_no, all_cost, entry.timestamp,
                    extra)  # fmt: skip


class _Metadata(msgspec.Struct, frozen=True):
    timeunit: str = "milliseconds"


class _T4Header(msgspec.Struct, frozen=True):
    """What a T4 file says of all its configurations."""

    metadata: _Metadata = _Metadata()

    def row(self, number: int, value: Any) -> Row:
        result = msgspec.convert(value, _Result)
        unit = self.metadata.timeunit
        if unit not in _PER_SECOND:
            raise LineError(f"times in {unit!r}")
        costs = [time / _PER_SECOND[unit] for time in result.times.runtimes]
        error_no = ERRORS.get(result.invalidity, UNKNOWN_ERROR)
        parameters = result.configuration
        return _row(number, "T4", [*parameters], parameters, costs, error_no, None,
                    result.timestamp, {})  # fmt: skip


_Header = _CacheHeader | _T4Header


def _row(
    number: int,
    version: str,
    workload: list[Any],
    parameters: dict[str, Any],
    costs: list[float],
    error_no: int,
    all_cost: float | None,
    timestamp: str | None,
    extra: dict[str, Any],
) -> Row:
    if not all(map(math.isfinite, costs)) or not math.isfinite(all_cost or 0.0):
        raise LineError("a number is out of range")
    steps = [strict_json.dumps(item) for item in parameters.items()]
    return Row(number, version, "", strict_json.dumps(workload), steps, costs, error_no, all_cost,
               _epoch(timestamp), strict_json.dumps(extra))  # fmt: skip


def _epoch(timestamp: str | None) -> float | None:
    if timestamp is None:
        return None
    time = datetime.fromisoformat(timestamp)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _configurations(path: Path) -> Iterator[tuple[int, _Header, Any]]:
    """Every configuration with the line that it begins in and what its file says of all."""
    window = _Window(path)
    window.fill()
    start = _START.search(window.text)
    if start is None:
        raise files.BrokenFileError(1, window.broken or "neither a cache nor results in it")
    header = _header(window.text[: start.start()], _CacheHeader if start[1] else _T4Header)
    window.at = start.end()
    while True:
        window.fill()
        key = _KEY.match(window.text, window.at)
        window.at = key.end() if key else window.at
        number = window.line()
        if window.text[window.at : window.at + 1] in ("}", "]"):
            return
        if window.at == len(window.text):
            if key and ":" in key[0]:
                window.broken = window.broken or "the file ends within a configuration"
            if window.broken:
                raise files.BrokenFileError(number, window.broken)
            return
        try:
            value, window.at = strict_json.loads_first(window.text, window.at)
        except LineError as error:
            why = window.broken or f"{error}; what follows is not read"
            raise files.BrokenFileError(number, why) from error
        yield number, header, value


def _header(text: str, kind: type[_Header]) -> _Header:
    try:
        return msgspec.convert(strict_json.loads((text.rstrip().rstrip(",") + "}").encode()), kind)
    except (LineError, msgspec.ValidationError) as error:
        raise files.BrokenFileError(1, f"not the beginning of a cache: {error}") from error


class _Window:
    """A part of the text of a file, read up to `at`. `broken`: why there is no more than it."""

    def __init__(self, path: Path) -> None:
        self.text = ""
        self.at = 0
        self.broken = ""
        self._chunks = files.chunks(path, _LONGEST)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1
        self._counted = 0

    def line(self) -> int:
        """The number of the line that `at` is in."""
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def fill(self) -> None:
        """Move on, so that any configuration that begins at `at` is held to its end."""
        while len(self.text) - self.at < _LONGEST and not self.broken:
            self.line()
            chunk = text = None
            try:
                chunk = next(self._chunks, b"")
                text = self._decoder.decode(chunk, final=not chunk)
            except OSError as error:
                self.broken = f"the file breaks off: {error}"
            except UnicodeDecodeError as error:
                text = error.object[: error.start].decode()
                self.broken = "not UTF-8 from here on"
            if not text and not chunk:
                return
            self.text = self.text[self.at :] + (text or "")
            self.at = self._counted = 0
