"""Conversions of torch operators that pick, order or count elements.

Each takes the translator, which knows the Relax of every operand, and the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of, shape_of
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

#: Up to this length a cumulative sum is one product with a triangle of ones.
_BLOCK = 256
#: An axis up to this length is ordered by comparing every pair of its elements.
_MOST_COMPARED = 2048
#: Most elements of a view whose places are written out.
_MOST_PLACES = 1 << 22


def _index(t: Any, node: Node) -> Any:
    """Advanced indexing as a lookup in one axis; negative indices count from the end.

    The indexed axes become one. Where they are not neighbours torch puts their result first.
    """
    source, given = node.args[0], node.args[1]
    shape = [int(e) for e in t.env[source].ty.shape]
    axes = [axis for axis, index in enumerate(given) if index is not None]  # type: ignore[arg-type]
    if any(str(t.env[given[axis]].ty.dtype) in ("bool", "uint8") for axis in axes):  # type: ignore[index]
        raise ValueError("a mask as index")
    indices = [_from_start(t, t.env[given[axis]], shape[axis]) for axis in axes]  # type: ignore[index]
    first, x = axes[0], t.env[source]
    if axes != list(range(first, first + len(axes))):
        rest = [axis for axis in range(len(shape)) if axis not in axes]
        x = op.permute_dims(x, axes + rest)
        shape = [shape[axis] for axis in axes + rest]
        first = 0
    end = first + len(axes)
    flat = op.reshape(x, [*shape[:first], math.prod(shape[first:end]), *shape[end:]])
    place = indices[0]
    for extent, index in zip(shape[first + 1 : end], indices[1:], strict=True):
        step = relax.const(extent, "int64")
        place = op.add(op.multiply(op.astype(place, "int64"), step), op.astype(index, "int64"))
    return t.block_builder.emit(op.take(flat, t.block_builder.emit(place), first))


def _from_start(t: Any, index: Any, extent: int) -> Any:
    dtype = str(index.ty.dtype)
    if hasattr(index, "value"):
        array = index.value.numpy()
        return index if (array >= 0).all() else relax.const((array + extent * (array < 0)), dtype)
    negative = t.block_builder.emit(op.less(index, relax.const(0, dtype)))
    shifted = t.block_builder.emit(op.add(index, relax.const(extent, dtype)))
    return t.block_builder.emit(op.where(negative, shifted, index))


def _cumulative_sum(t: Any, node: Node) -> Any:
    """In the type that torch gives the sum: that of integers is int64."""
    shape = shape_of(node)
    axis = int(argument(node, 1, "dim")) % max(len(shape), 1)
    order = [i for i in range(len(shape)) if i != axis] + [axis]
    x = op.astype(t.env[node.args[0]], dtype_of(node))
    if not shape:
        return t.block_builder.emit(x)
    last = op.permute_dims(x, order)
    summed = _summed(last, [shape[i] for i in order], dtype_of(node))
    back = [order.index(i) for i in range(len(shape))]
    return t.block_builder.emit(op.permute_dims(summed, back))


def _summed(x: Any, shape: list[int], dtype: str) -> Any:
    """The cumulative sum along the last axis: within blocks, and of the blocks before each."""
    *lead, length = shape
    if length <= _BLOCK:
        return op.matmul(x, _triangle(length, dtype))
    blocks = -(-length // _BLOCK)
    padded = op.nn.pad(x, [0] * (2 * len(lead) + 1) + [blocks * _BLOCK - length])
    within = op.matmul(op.reshape(padded, [*lead, blocks, _BLOCK]), _triangle(_BLOCK, dtype))
    totals = op.reshape(op.take(within, relax.const(_BLOCK - 1, "int64"), -1), [*lead, blocks])
    before = op.subtract(_summed(totals, [*lead, blocks], dtype), totals)
    found = op.add(within, op.reshape(before, [*lead, blocks, 1]))
    flat = op.reshape(found, [*lead, blocks * _BLOCK])
    return op.strided_slice(flat, [len(lead)], [0], [length])


def _triangle(length: int, dtype: str) -> Any:
    return relax.const(np.triu(np.ones((length, length), dtype)), dtype)


def _strided(t: Any, node: Node) -> Any:
    """as_strided of a tensor that fills its memory: a lookup of places that are known here."""
    x: Any = node.args[0]
    strides: Any = node.args[2]
    value = x.meta["val"]
    offset = int(argument(node, 3, "storage_offset") or 0)
    if not value.is_contiguous() or value.storage_offset():
        raise ValueError("a view of memory that other tensors lie in")
    if math.prod(shape_of(node)) > _MOST_PLACES:
        raise ValueError("a view with more elements than are written out")
    places = np.full(shape_of(node), offset, "int64")
    for axis, stride in enumerate(strides):
        extent = places.shape[axis]
        steps = np.arange(extent, dtype="int64") * int(stride)
        places += steps.reshape([-1 if i == axis else 1 for i in range(places.ndim)])
    flat = op.reshape(t.env[x], [value.numel()])
    return t.block_builder.emit(op.take(flat, relax.const(places, "int64"), 0))


def _ordered(t: Any, x: Any, axis: int, count: int, *, descending: bool) -> list[Any]:
    """The first `count` values along an axis in order, and where they were; equal ones stay in
    theirs. The rank of an element is the number of those that come before it."""
    extents = [int(e) for e in x.ty.shape]
    length, dtype = extents[axis], str(x.ty.dtype)
    if length > _MOST_COMPARED:
        raise ValueError(f"{length} elements to order")
    order = [i for i in range(len(extents)) if i != axis] + [axis]
    back = [order.index(i) for i in range(len(extents))]
    emit = t.block_builder.emit
    last = emit(op.permute_dims(x, order))
    this, other = op.expand_dims(last, -1), op.expand_dims(last, -2)
    before = op.greater(other, this) if descending else op.less(other, this)
    earlier = relax.const(np.tri(length, k=-1, dtype="bool"), "bool")
    first = op.logical_or(before, op.logical_and(op.equal(other, this), earlier))
    rank = emit(op.sum(op.astype(first, "int32"), -1))
    # One row for each place in the order: which element has it.
    wanted = relax.const(np.arange(count).reshape(count, 1), "int32")
    chosen = op.equal(op.expand_dims(rank, -2), wanted)
    numbers = relax.const(np.arange(length), "int64")
    places = emit(op.sum(op.where(chosen, numbers, relax.const(0, "int64")), -1))
    if dtype == "bool":
        last = op.astype(last, "int8")
    values = emit(op.gather_elements(last, places, len(extents) - 1))
    values = op.astype(values, dtype) if dtype == "bool" else values
    return [emit(op.permute_dims(values, back)), emit(op.permute_dims(places, back))]


def _top(t: Any, node: Node) -> Any:
    """topk: in order, whether that is asked for or not."""
    x, count = t.env[node.args[0]], int(node.args[1])  # type: ignore[arg-type]
    axis = int(argument(node, 2, "dim", -1)) % max(x.ty.ndim, 1)
    return _ordered(t, x, axis, count, descending=bool(argument(node, 3, "largest", True)))


def _sorted(t: Any, node: Node) -> Any:
    """sort.default (x, dim, descending) and sort.stable, which names them."""
    stable = "stable" in node.target.__name__  # type: ignore[union-attr]
    x, start = t.env[node.args[0]], 2 if stable else 1
    axis = int(argument(node, start, "dim", -1)) % max(x.ty.ndim, 1)
    descending = bool(argument(node, start + 1, "descending", False))
    return _ordered(t, x, axis, int(x.ty.shape[axis]), descending=descending)


def _argsorted(t: Any, node: Node) -> Any:
    x = t.env[node.args[0]]
    axis = int(argument(node, 1, "dim", -1)) % max(x.ty.ndim, 1)
    descending = bool(argument(node, 2, "descending", False))
    return _ordered(t, x, axis, int(x.ty.shape[axis]), descending=descending)[1]


def _histogram(t: Any, node: Node) -> Any:
    """histc with a given range: what lies outside is not counted."""
    bins = int(argument(node, 1, "bins", 100))
    low, high = float(argument(node, 2, "min", 0)), float(argument(node, 3, "max", 0))
    if low >= high:
        raise ValueError("a range that depends on the values")
    x = op.reshape(t.env[node.args[0]], [-1, 1])
    dtype = dtype_of(node)
    scaled = op.divide(
        op.multiply(op.subtract(x, relax.const(low, dtype)), relax.const(bins, dtype)),
        relax.const(high - low, dtype),
    )
    place = op.minimum(op.floor(scaled), relax.const(bins - 1, dtype))
    hit = op.equal(place, relax.const(np.arange(bins), dtype))
    within = op.less_equal(x, relax.const(high, dtype))
    return t.block_builder.emit(op.sum(op.astype(op.logical_and(hit, within), dtype), 0))


#: By the name of the torch operator.
SELECTING: dict[str, Callable[[Any, Node], Any]] = {
    "index.Tensor": _index,
    "cumsum.default": _cumulative_sum,
    "as_strided.default": _strided,
    "topk.default": _top,
    "sort.default": _sorted,
    "sort.stable": _sorted,
    "argsort.default": _argsorted,
    "histc.default": _histogram,
}
