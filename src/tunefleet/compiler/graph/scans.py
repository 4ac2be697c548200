"""Sums, products and extremes of all elements up to each: one pass along the axis, the others in
parallel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tunefleet.compiler.graph.kernels import each
from tunefleet.compiler.graph.loops import T, allocated, alone, call_loops, parallel, sum_type
from tunefleet.compiler.graph.ordering import COMPARED
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

#: Elements side by side that a thread sums up together.
_MOST_TOGETHER = 64


def cumsum(builder: Any, call: Any) -> Any:
    """The definition of relax.cumsum."""
    return _defined(builder, call, "cumsum", 0, lambda a, b: a + b)


def cumprod(builder: Any, call: Any) -> Any:
    """The definition of relax.cumprod."""
    return _defined(builder, call, "cumprod", 1, lambda a, b: a * b)


def logcumsumexp(builder: Any, x: Any, axis: int) -> Any:
    """A call of the logarithms of sums of exponentials up to each element of an axis."""
    return _scan(builder, "logcumsumexp", x, x.ty, axis, -math.inf, _log_of_sum)


def running_extreme(builder: Any, x: Any, axis: int, *, largest: bool) -> Any:
    """A call of the largest or smallest element up to each of an axis, and of where the last such
    is (int64). What is not a number is beyond all others, and its first place counts."""
    shape = [int(extent) for extent in x.ty.shape.values]
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    dtype = str(x.ty.dtype)
    held = COMPARED.get(dtype, dtype)

    def replaces(new: Any, old: Any) -> Any:
        reached = new >= old if largest else new <= old
        if not held.startswith("float"):
            return reached
        return tirx.all(tirx.Not(tirx.isnan(old)), tirx.any(reached, tirx.isnan(new)))

    def step(inputs: list[Any], outputs: list[Any], row: Any) -> None:
        (source,), (values, places) = inputs, outputs
        first = row // inner * (shape[axis] * inner) + row % inner
        best, place = allocated([1], held), allocated([1], "int64")
        best[0], place[0] = source[first].astype(held), tirx.const(0, "int64")
        with T.serial(0, shape[axis]) as number:
            new = source[first + number * inner].astype(held)
            with T.If(replaces(new, best[0])), T.Then():
                best[0], place[0] = new, number.astype("int64")
            values[first + number * inner] = best[0].astype(dtype)
            places[first + number * inner] = place[0]

    types = [relax.TensorType(shape, dtype), relax.TensorType(shape, "int64")]
    return call_loops(
        builder, "cummax" if largest else "cummin", [x], types, *alone(outer * inner, step)
    )


def _log_of_sum(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), of infinities too. tirx.max would drop what is not a number."""
    larger = tirx.Select(a > b, a, b)
    further = tirx.log(tirx.exp(-tirx.abs(a - b)) + tirx.const(1, a.ty.dtype))
    return tirx.Select(a == b, a + math.log(2), larger + further)


def _defined(
    builder: Any, call: Any, name: str, start: float, combine: Callable[[Any, Any], Any]
) -> Any:
    """The definition of one of Relax's scans."""
    (x,), attrs = call.args, call.attrs
    axis = None if attrs.axis is None else int(attrs.axis)
    exclusive = bool(attrs.exclusive)
    return _scan(builder, name, x, call.ty, axis, start, combine, exclusive=exclusive)


def _scan(
    builder: Any,
    name: str,
    x: Any,
    result: Any,
    along: int | None,
    start: float,
    combine: Callable[[Any, Any], Any],
    *,
    exclusive: bool = False,
) -> Any:
    """A call of a scan along an axis into the type `result`."""
    shape = [int(extent) for extent in x.ty.shape.values]
    dtype = str(result.dtype)
    summed = sum_type(dtype)
    after = [int(extent) for extent in result.shape.values]
    # Without an axis, the elements in their order are one row.
    rows = shape if along is not None else [math.prod(shape)]
    axis = along % len(rows) if along is not None else 0
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
