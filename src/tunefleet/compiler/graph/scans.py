"""Sums and products of all elements up to each: one pass along the axis, the others in parallel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tunefleet.compiler.graph.kernels import each
from tunefleet.compiler.graph.loops import T, allocated, call_loops, parallel, sum_type
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

#: Elements side by side that a thread sums up together.
_MOST_TOGETHER = 64


def cumsum(builder: Any, call: Any) -> Any:
    """The definition of relax.cumsum."""
    return _scan(builder, call, "cumsum", 0, lambda a, b: a + b)


def cumprod(builder: Any, call: Any) -> Any:
    """The definition of relax.cumprod."""
    return _scan(builder, call, "cumprod", 1, lambda a, b: a * b)


def _scan(
    builder: Any, call: Any, name: str, start: int, combine: Callable[[Any, Any], Any]
) -> Any:
    (x,), attrs = call.args, call.attrs
    shape = [int(extent) for extent in x.ty.shape.values]
    dtype, exclusive = str(call.ty.dtype), bool(attrs.exclusive)
    summed = sum_type(dtype)
    after = [int(extent) for extent in call.ty.shape.values]
    # Without an axis, the elements in their order are one row.
    rows = shape if attrs.axis is not None else [math.prod(shape)]
    axis = int(attrs.axis) % len(rows) if attrs.axis is not None else 0
    outer, inner = math.prod(rows[:axis]), math.prod(rows[axis + 1 :])
    together = max(n for n in range(1, _MOST_TOGETHER + 1) if inner % n == 0)

    def write(inputs: list[Any], outputs: list[Any]) -> None:
        with parallel(outer * inner // together) as thread:
            scan(inputs[0], outputs[0], thread, together)

    def kernels(inputs: list[Any], outputs: list[Any], most: int) -> None:
        with each(outer * inner, most) as thread:
            scan(inputs[0], outputs[0], thread, 1)

    def scan(source: Any, target: Any, thread: Any, together: int) -> None:
        groups = inner // together
        totals = allocated([together], summed)
        with T.serial(0, together) as i:
            totals[i] = tirx.const(start, summed)
        first = thread // groups * (rows[axis] * inner) + thread % groups * together
        with T.serial(0, rows[axis]) as step, T.serial(0, together) as i:
            place = first + step * inner + i
            total = combine(totals[i], source[place].astype(summed))
            if exclusive:
                target[place] = totals[i].astype(dtype)
                totals[i] = total
            else:
                totals[i] = total
                target[place] = totals[i].astype(dtype)

    return call_loops(builder, name, [x], [relax.TensorType(after, dtype)], write, kernels)
