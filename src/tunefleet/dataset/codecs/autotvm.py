"""AutoTVM logs, v0.1 and v0.2: one JSON object a line; TopHub's are the same with comments.

    {"input": [target, template, args, kwargs],
     "config": {"index": 193, "code_hash": null, "entity": [["tile_ic", "sp", [1, 3]], ...]},
     "result": [[cost_s, ...], error_no, all_cost_s, timestamp], "version": 0.2, "tvm_version": ""}

    {"i": [target, template, args, kwargs, workload, {"i": 193, "t": "", "c": null, "e": [...]}],
     "r": [[cost_s, ...], error_no, all_cost_s, timestamp], "v": 0.1}

An entity is a step; template and arguments are the workload.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta, Raw

from tunefleet.dataset.codecs import strict_json
from tunefleet.dataset.codecs.codec import LineError, TellBadLine
from tunefleet.dataset.codecs.rows import Row, read_lines
from tunefleet.dataset.formats import AUTOTVM

_ErrorNumber = Annotated[int, Meta(ge=0, le=2**15 - 1)]
_Index = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Result = tuple[tuple[float, ...], _ErrorNumber, float, float]


class _Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: _Index | None
    entity: list[Raw]
    code_hash: str | None = None


class _OldConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    i: _Index | None
    e: list[Raw]
    t: str = ""
    c: str | None = None


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: tuple[str, str, Raw, Raw]
    config: _Config
    result: _Result
    version: float
    tvm_version: str = ""


class _OldLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    i: tuple[str, str, Raw, Raw, Raw, _OldConfig]
    r: _Result
    v: float


_Entity = tuple[str, Literal["sp", "ot", "re", "an"], Any]
_decoder = msgspec.json.Decoder(_Line)
_old_decoder = msgspec.json.Decoder(_OldLine)


def _keys(*kinds: type[msgspec.Struct]) -> tuple[bytes, ...]:
    return tuple(f'"{key}"'.encode() for kind in kinds for key in kind.__struct_fields__)


#: Keys that msgspec would let a later one of the same name replace.
_KEYS = _keys(_Line, _Config)
#: Keys of one letter are those of v0.1.
_OLD_START = re.compile(rb'\s*\{\s*"[irv]"')
_OLD_KEYS = _keys(_OldLine, _OldConfig)


class AutoTVM:
    """Reads AutoTVM logs."""

    name = AUTOTVM

    def sniff(self, path: Path, head: bytes) -> bool:
        return re.search(rb'^\{[^\n]*"(input|i)"\s*:\s*\[\s*"', head, re.MULTILINE) is not None

    def read(self, path: Path, device: str, report: TellBadLine) -> Iterator[pa.RecordBatch]:
        return read_lines(path, AUTOTVM, device, parse, report)


def parse(number: int, line: bytes) -> Row:
    """One line; raises LineError."""
    is_old = _OLD_START.match(line) is not None
    try:
        row = _old_row(number, line) if is_old else _row(number, line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        strict_json.loads(line)  # has more to say of what is no JSON
        raise LineError(f"not a record: {error}") from error
    if b"\\u" in line or any(line.count(key) > 1 for key in (_OLD_KEYS if is_old else _KEYS)):
        strict_json.loads(line)
    if not all(
        math.isfinite(value)
        for value in (*row.costs_s, row.all_cost_s or 0.0, row.timestamp or 0.0)
    ):
        raise LineError("a number is out of range")
    return row


def _row(number: int, line: bytes) -> Row:
    value = _decoder.decode(line)
    if value.version != 0.2:
        raise LineError(f"version {value.version} is not known")
    target, template, args, kwargs = value.input
    config = value.config
    extra = {
        "kwargs": _value(bytes(kwargs)),
        "index": config.index,
        "code_hash": config.code_hash,
        "tvm_version": value.tvm_version,
    }
    return Row(number, "0.2", target, _workload(template, bytes(args)), _steps(config.entity),
               *value.result, strict_json.dumps(extra))  # fmt: skip


def _old_row(number: int, line: bytes) -> Row:
    value = _old_decoder.decode(line)
    if value.v != 0.1:
        raise LineError(f"version {value.v} is not known")
    target, template, args, kwargs, workload, config = value.i
    extra = {
        "kwargs": _value(bytes(kwargs)),
        "workload": _value(bytes(workload)),
        "index": config.i,
        "template_key": config.t,
        "code_hash": config.c,
    }
    return Row(number, "0.1", target, _workload(template, bytes(args)), _steps(config.e),
               *value.r, strict_json.dumps(extra))  # fmt: skip


def _steps(entities: list[Raw]) -> list[str]:
    return [_entity(bytes(entity)) for entity in entities]


@lru_cache(maxsize=1 << 16)
def _entity(text: bytes) -> str:
    value = strict_json.loads(text)
    msgspec.convert(value, _Entity)
    return strict_json.dumps(value)


@lru_cache(maxsize=1 << 12)
def _workload(template: str, args: bytes) -> str:
    value = strict_json.loads(args)
    if not isinstance(value, list):
        raise LineError("not a record: the arguments of the template are no array")
    return strict_json.dumps([template, *value])


@lru_cache(maxsize=1 << 12)
def _value(text: bytes) -> Any:
    return strict_json.loads(text)
