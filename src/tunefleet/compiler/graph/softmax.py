"""Softmax of rows as a program for CPUs, in whole vectors whatever a row's length.

Schedules cut rows into vectors that divide them. The 197, 261 and 577 tokens of vision transformers
have no such vectors; padding them instead makes the products of an attention longer too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.loops import T, allocated, call_program, is_gpu, parallel
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

_SOFTMAX = tvm.ir.Op.get("relax.nn.softmax")
#: Numbers side by side: two registers of AVX-512, four of AVX2.
_LANES = 32
#: Numbers of a row below which vectors gain nothing.
_SHORTEST = 8
#: Numbers for which it pays to wake the threads.
_PART = 2**13


def softmax(builder: Any, call: Any) -> Any:
    """The definition of relax.nn.softmax: on a CPU the program for float32 along the last axis."""
    (x,), shape = call.args, ints(call.ty.shape.values)
    inside = int(call.attrs.axis) in (-1, len(shape) - 1) and shape[-1] >= _SHORTEST
    if (
        not inside
        or str(x.ty.dtype) != "float32"
        or is_gpu(tvm.target.Target.current(allow_none=True))
    ):
        return _SOFTMAX.get_attr("FLegalize")(builder, call)
    return call_program(builder, "softmax", [x], [relax.TensorType(shape, "float32")], _write)


def _write(inputs: list[Any], outputs: list[Any]) -> None:
    (x,), (y,) = inputs, outputs
    *outer, length = (int(extent) for extent in x.shape)
    rows = math.prod(outer)
    with parallel(rows) if rows * length >= _PART else T.serial(0, rows) as row:
        seen, found = allocated([_LANES], "float32"), allocated([2], "float32")
        _filled(seen, -math.inf)
        for place, lane in _vectors(row * length, length):
            seen[lane] = tirx.max(seen[lane], x[place])
        found[0] = _joined(seen, tirx.max)
        _filled(seen, 0.0)
        for place, lane in _vectors(row * length, length):
            y[place] = T.exp(x[place] - found[0])
            seen[lane] = seen[lane] + y[place]
        found[1] = T.float32(1.0) / _joined(seen, lambda one, other: one + other)
        for place, _ in _vectors(row * length, length):
            y[place] = y[place] * found[1]


def _vectors(first: Any, length: int) -> Iterator[tuple[Any, Any]]:
    """The places of a row, and their lanes: what is written for them is written in vectors of
    `_LANES` and, for the rest, of fewer."""
    begin = length // _LANES * _LANES
    if begin:
        with T.serial(0, begin // _LANES) as vector, T.vectorized(0, _LANES) as lane:
            yield first + vector * _LANES + lane, lane
    width = _LANES
    while begin < length:
        width //= 2
        if width <= length - begin:
            with T.vectorized(0, width) as lane:
                yield first + begin + lane, lane
            begin += width


def _filled(buffer: Any, value: float) -> None:
    with T.vectorized(0, _LANES) as lane:
        buffer[lane] = tirx.const(value, "float32")


def _joined(seen: Any, of_two: Callable[[Any, Any], Any]) -> Any:
    """One number of those of all lanes, by halves."""
    width = _LANES
    while width > 1:
        width //= 2
        with T.vectorized(0, width) as lane:
            seen[lane] = of_two(seen[lane], seen[width + lane])
    return seen[0]
