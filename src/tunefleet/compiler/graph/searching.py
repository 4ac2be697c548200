"""Programs that look through what is in order: where numbers belong in it, and which comes most
often."""

from __future__ import annotations

import math
from typing import Any

from tunefleet.compiler.graph.loops import T, allocated, alone, call_loops
from tunefleet.compiler.graph.ordering import COMPARED
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx


def searchsorted(builder: Any, rows: Any, x: Any, dtype: str, *, right: bool) -> Any:
    """A call of the places (of type `dtype`) at which the elements of `x` keep the last axis of
    `rows` in order: before those that are equal, or to their `right`. `rows` has one row for all of
    `x`, or one for each row of it. What is not a number belongs to the end."""
    extents = [int(extent) for extent in rows.ty.shape.values]
    shape = [int(extent) for extent in x.ty.shape.values]
    length, total = extents[-1], math.prod(shape)
    each = total // math.prod(extents[:-1])
    compared = COMPARED.get(str(x.ty.dtype), str(x.ty.dtype))

    def step(inputs: list[Any], outputs: list[Any], i: Any) -> None:
        (ordered, wanted), (places,) = inputs, outputs
        low, high = allocated([1], "int32"), allocated([1], "int32")
        low[0], high[0] = tirx.const(0, "int32"), tirx.const(length, "int32")
        with T.While(low[0] < high[0]):
            middle = (low[0] + high[0]) // 2
            there = ordered[i // each * length + middle].astype(compared)
            here = wanted[i].astype(compared)
            with T.If(there > here if right else there >= here):
                with T.Then():
                    high[0] = middle
                with T.Else():
                    low[0] = middle + 1
        places[i] = low[0].astype(dtype)

    types = [relax.TensorType(shape, dtype)]
    return call_loops(builder, "searchsorted", [rows, x], types, *alone(total, step))


def mode(builder: Any, values: Any, indices: Any, axis: int) -> Any:
    """A call of the most frequent of the `values`, which are in order along an axis, the first of
    them where there are several, and of the last of its `indices`. The axis is left out."""
    shape = [int(extent) for extent in values.ty.shape.values]
    length, inner = shape[axis], math.prod(shape[axis + 1 :])
    outer, after = math.prod(shape[:axis]), [*shape[:axis], *shape[axis + 1 :]]
    dtypes = [str(values.ty.dtype), str(indices.ty.dtype)]
    compared = COMPARED.get(dtypes[0], dtypes[0])

    def step(inputs: list[Any], outputs: list[Any], row: Any) -> None:
        (ordered, numbers), (frequent, where) = inputs, outputs
        first = row // inner * (length * inner) + row % inner
        count, most = allocated([1], "int32"), allocated([1], "int32")
        count[0], most[0] = tirx.const(0, "int32"), tirx.const(0, "int32")
        with T.serial(0, length) as number:
            place = first + number * inner
            following = first + tirx.min(number + 1, length - 1) * inner
            count[0] = count[0] + 1
            now, then = (ordered[p].astype(compared) for p in (place, following))
            # Nothing equals what is not a number, whatever LLVM's `!=` says.
            further = now < then
            if compared.startswith("float"):
                further = tirx.any(further, tirx.isnan(then))
            with T.If(tirx.any(number == length - 1, further)), T.Then():
                with T.If(count[0] > most[0]), T.Then():
                    most[0] = count[0]
                    frequent[row] = ordered[place]
                    where[row] = numbers[place]
                count[0] = tirx.const(0, "int32")

    types = [relax.TensorType(after, dtype) for dtype in dtypes]
    return call_loops(builder, "mode", [values, indices], types, *alone(outer * inner, step))
