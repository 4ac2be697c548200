"""Conversions of torch operators that pick, place or count elements.

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

#: Most elements of a view whose places are written out.
MOST_PLACES = 1 << 22
#: A place known here may be added to so often.
_MOST_TURNS = 64


def _index(t: Any, node: Node) -> Any:
    """Advanced indexing as a lookup in one axis, which the indexed axes become.

    Where they are not neighbours torch puts their result first.
    """
    x = t.env[node.args[0]]
    shape = [int(e) for e in x.ty.shape]
    axes, indices = _indices(t, node, shape)
    first = axes[0]
    if not _are_neighbours(axes):
        order = axes + [axis for axis in range(len(shape)) if axis not in axes]
        x, shape, first = op.permute_dims(x, order), [shape[axis] for axis in order], 0
    end = first + len(axes)
    flat = op.reshape(x, [*shape[:first], math.prod(shape[first:end]), *shape[end:]])
    places = t.block_builder.emit(_places(indices, shape[first:end]))
    return t.block_builder.emit(op.take(flat, places, first))


def _select(t: Any, node: Node) -> Any:
    """One element of an axis; it may be counted from the end."""
    x = t.env[node.args[0]]
    axis = int(argument(node, 1, "dim")) % x.ty.ndim
    place = int(argument(node, 2, "index")) % int(x.ty.shape[axis])
    return t.block_builder.emit(op.take(x, relax.const(place, "int64"), axis))


def _index_put(t: Any, node: Node) -> Any:
    """The reverse of a lookup: rows of the indexed axes are replaced or added to."""
    x, values = t.env[node.args[0]], t.env[node.args[2]]
    accumulate = bool(argument(node, 3, "accumulate", False))
    shape = [int(e) for e in x.ty.shape]
    if (mask := _mask(t, node)) is not None and math.prod(values.ty.shape) == 1 and not accumulate:
        one = op.reshape(values, [1] * len(shape))
        return t.block_builder.emit(op.where(mask, one, x))
    axes, indices = _indices(t, node, shape)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    chosen = list(np.broadcast_shapes(*(tuple(int(e) for e in i.ty.shape) for i in indices)))
    before = [a for a in rest if a < axes[0]] if _are_neighbours(axes) else []
    whole = [shape[a] for a in before] + chosen + [shape[a] for a in rest[len(before) :]]
    front = list(range(len(before), len(before) + len(chosen)))
    back = [i for i in range(len(whole)) if i not in front]
    places, rows = math.prod(shape[a] for a in axes), math.prod(shape[a] for a in rest)
    new = op.permute_dims(op.broadcast_to(values, whole), front + back)
    new = t.block_builder.emit(op.reshape(new, [math.prod(chosen), rows]))
    old = t.block_builder.emit(op.reshape(op.permute_dims(x, axes + rest), [places, rows]))
    where = _places(indices, [shape[a] for a in axes])
    if hasattr(where, "value"):
        numbers = np.broadcast_to(where.value.numpy(), chosen).reshape(-1)
        put = _put_known(t, old, new, numbers, accumulate)
    else:
        numbers = op.reshape(op.broadcast_to(where, chosen), [math.prod(chosen), 1])
        put = op.scatter_nd(old, numbers, new, "add" if accumulate else "update")
    order = axes + rest
    shaped = op.reshape(put, [shape[a] for a in order])
    return t.block_builder.emit(
        op.permute_dims(shaped, [order.index(a) for a in range(len(shape))])
    )


def _mask(t: Any, node: Node) -> Any:
    """The mask that is the only index, with as many axes as what it picks from; else None."""
    given: Any = node.args[1]
    axes = [axis for axis, index in enumerate(given) if index is not None]
    if len(axes) != 1 or str((mask := t.env[given[axes[0]]]).ty.dtype) != "bool":
        return None
    extents = [int(e) for e in mask.ty.shape]
    missing = t.env[node.args[0]].ty.ndim - axes[0] - len(extents)
    return op.reshape(mask, [*extents, *[1] * missing])


def _put_known(t: Any, old: Any, new: Any, places: Any, accumulate: bool) -> Any:
    """Rows of `new` at places known here: a lookup for each time that a place comes again."""
    sources: list[dict[int, int]] = [{}]
    for row, place in enumerate(places.tolist()):
        turn = 0
        while accumulate and place in sources[turn]:
            turn += 1
            if turn == len(sources):
                sources.append({})
        sources[turn][place] = row
    if len(sources) > _MOST_TURNS:
        raise NotImplementedError(f"{len(sources)} values are added up at one place")
    extent, dtype = int(old.ty.shape[0]), str(old.ty.dtype)
    for source in sources:
        rows = relax.const(np.array([source.get(i, 0) for i in range(extent)]), "int64")
        hit = relax.const(np.array([[i in source] for i in range(extent)]), "bool")
        taken = op.take(new, rows, 0)
        if accumulate:
            old = t.block_builder.emit(op.add(old, op.where(hit, taken, relax.const(0, dtype))))
        else:
            old = t.block_builder.emit(op.where(hit, taken, old))
    return old


def _indices(t: Any, node: Node, shape: list[int]) -> tuple[list[int], list[Any]]:
    """The indexed axes and their indices, which count from the start."""
    given: Any = node.args[1]
    axes = [axis for axis, index in enumerate(given) if index is not None]
    if any(str(t.env[given[axis]].ty.dtype) in ("bool", "uint8") for axis in axes):
        raise NotImplementedError("a mask as index")
    return axes, [_from_start(t, t.env[given[axis]], shape[axis]) for axis in axes]


def _are_neighbours(axes: list[int]) -> bool:
    return axes == list(range(axes[0], axes[0] + len(axes)))


def _places(indices: list[Any], extents: list[int]) -> Any:
    """Where the elements are once the indexed axes are one; a constant if the indices are."""
    if all(hasattr(index, "value") for index in indices):
        known = 0
        for extent, index in zip(extents, indices, strict=True):
            known = known * extent + index.value.numpy().astype("int64")
        return relax.const(known, "int64")
    place, *others = [op.astype(index, "int64") for index in indices]
    for extent, index in zip(extents[1:], others, strict=True):
        place = op.add(op.multiply(place, relax.const(extent, "int64")), index)
    return place


def _from_start(t: Any, index: Any, extent: int) -> Any:
    dtype = str(index.ty.dtype)
    if hasattr(index, "value"):
        array = index.value.numpy()
        return index if (array >= 0).all() else relax.const((array + extent * (array < 0)), dtype)
    negative = t.block_builder.emit(op.less(index, relax.const(0, dtype)))
    shifted = t.block_builder.emit(op.add(index, relax.const(extent, dtype)))
    return t.block_builder.emit(op.where(negative, shifted, index))


def _strided(t: Any, node: Node) -> Any:
    """as_strided of a tensor that fills its memory: a lookup of places that are known here."""
    x: Any = node.args[0]
    strides: Any = node.args[2]
    value = x.meta["val"]
    offset = int(argument(node, 3, "storage_offset") or 0)
    if not value.is_contiguous() or value.storage_offset():
        raise NotImplementedError("a view of memory that other tensors lie in")
    if math.prod(shape_of(node)) > MOST_PLACES:
        raise NotImplementedError("a view with more elements than are written out")
    places = np.full(shape_of(node), offset, "int64")
    for axis, stride in enumerate(strides):
        extent = places.shape[axis]
        steps = np.arange(extent, dtype="int64") * int(stride)
        places += steps.reshape([-1 if i == axis else 1 for i in range(places.ndim)])
    flat = op.reshape(t.env[x], [value.numel()])
    return t.block_builder.emit(op.take(flat, relax.const(places, "int64"), 0))


def _windows(t: Any, node: Node) -> Any:
    """Tensor.unfold: windows of an axis, whose elements become the last axis."""
    x = t.env[node.args[0]]
    extents = [int(e) for e in x.ty.shape]
    if not extents:
        raise NotImplementedError("windows of a number")
    axis = int(argument(node, 1, "dimension")) % len(extents)
    size, step = int(argument(node, 2, "size")), int(argument(node, 3, "step"))
    count = (extents[axis] - size) // step + 1
    if size == step:
        whole = op.strided_slice(x, [axis], [0], [count * size])
        windows = op.reshape(whole, [*extents[:axis], count, size, *extents[axis + 1 :]])
    else:
        places = np.arange(count)[:, None] * step + np.arange(size)
        windows = op.take(x, relax.const(places, "int64"), axis)
    order = [i for i in range(len(extents) + 1) if i != axis + 1] + [axis + 1]
    return t.block_builder.emit(op.permute_dims(t.block_builder.emit(windows), order))


def _histogram(t: Any, node: Node) -> Any:
    """histc with a given range: what lies outside is not counted."""
    bins = int(argument(node, 1, "bins", 100))
    low, high = float(argument(node, 2, "min", 0)), float(argument(node, 3, "max", 0))
    if low >= high:
        raise NotImplementedError("a range that depends on the values")
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
    "select.int": _select,
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "as_strided.default": _strided,
    "unfold.default": _windows,
    "histc.default": _histogram,
}
