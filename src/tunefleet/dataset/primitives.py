"""Kinds of primitives, derived from their texts, and names of failures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tunefleet.dataset.formats import AUTO_SCHEDULER, AUTOTVM

#: The schedule primitives of auto_scheduler (`transform_step.cc`).
_AUTO_SCHEDULER = {
    "AN": "annotation",
    "FU": "fuse",
    "PR": "pragma",
    "RE": "reorder",
    "SP": "split",
    "FSP": "follow split",
    "FFSP": "follow fused split",
    "SA": "storage align",
    "CA": "compute at",
    "CI": "compute inline",
    "CR": "compute root",
    "CHR": "cache read",
    "CHW": "cache write",
    "RF": "rfactor",
}

_AUTOTVM = {"sp": "split", "re": "reorder", "an": "annotation", "ot": "other option"}

#: auto_scheduler's number of an unknown error.
UNKNOWN_ERROR = 8
#: auto_scheduler's error numbers; the codecs of other formats use them too.
FAILURES = {
    1: "instantiation error",
    2: "host compile error",
    3: "device compile error",
    4: "runtime error",
    5: "wrong answer",
    6: "build timeout",
    7: "run timeout",
    UNKNOWN_ERROR: "unknown error",
}


def failure_name(error_no: int) -> str:
    """`runtime error`, or `error 77` for an unknown number."""
    return FAILURES.get(error_no, f"error {error_no}")


def kind_of(format: str, primitive: str) -> str:
    """The kind: `SP` of auto_scheduler, `sp` of AutoTVM's entities, the instruction of MetaSchedule
    and the parameter of Kernel Tuner; `?` if there is none."""
    try:
        value = json.loads(primitive)
        kind = value[1] if format == AUTOTVM else value[0]
    except (ValueError, TypeError, IndexError, KeyError):
        return "?"
    return kind if isinstance(kind, str) else "?"


def kind_name(format: str, kind: str) -> str:
    """The readable name of a kind, such as `split`; the kind itself if it is readable."""
    names = {AUTO_SCHEDULER: _AUTO_SCHEDULER, AUTOTVM: _AUTOTVM}.get(format, {})
    return names.get(kind, kind)


class Vocabulary:
    """Indices of the distinct primitives of one format and of their kinds.

    Each primitive is parsed once, when it is first seen.
    """

    def __init__(self, format: str) -> None:
        self.format = format
        self.kinds: list[str] = []
        self._kind_numbers: dict[str, int] = {}
        self._numbers: dict[str, tuple[int, int]] = {}
        self._last: pa.Array | None = None
        self._found = (np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self._numbers)

    def look_up(self, primitives: pa.Array) -> tuple[NDArray[Any], NDArray[Any]]:
        """The index of each primitive, and that of its kind."""
        # Batches of one row group share a dictionary, which is looked up once.
        if not _same(primitives, self._last):
            known = self._numbers
            numbers = [known.get(text) or self._new(text) for text in primitives.to_pylist()]
            pairs = np.array(numbers, np.int64).reshape(-1, 2)
            self._last, self._found = primitives, (pairs[:, 0], pairs[:, 1])
        return self._found

    def _new(self, text: str) -> tuple[int, int]:
        kind = kind_of(self.format, text)
        if kind not in self._kind_numbers:
            self._kind_numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        self._numbers[text] = (len(self._numbers), self._kind_numbers[kind])
        return self._numbers[text]


def _same(first: pa.Array, second: pa.Array | None) -> bool:
    """Whether two arrays share memory: cheaper than comparing their content."""
    return second is not None and _place(first) == _place(second)


def _place(array: pa.Array) -> tuple[Any, ...]:
    addresses = (buffer and buffer.address for buffer in array.buffers())
    return (array.offset, len(array), *addresses)
