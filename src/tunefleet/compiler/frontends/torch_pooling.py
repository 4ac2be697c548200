"""Conversions of torch operators that take the largest number of windows whose sizes vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import shape_of
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op


def _adaptive_max(spatial: int) -> Callable[[Any, Node], list[Any]]:
    """adaptive_max_pool2d and adaptive_max_pool3d: the largest of each window, and where it was
    among the numbers of its channel."""

    def convert(t: Any, node: Node) -> list[Any]:
        emit, x = t.block_builder.emit, t.env[node.args[0]]
        extents = [int(extent) for extent in x.ty.shape]
        lead, before = extents[:-spatial], extents[-spatial:]
        after = shape_of(node)[-spatial:]
        if spatial == 2 and not any(b % a for b, a in zip(before, after, strict=True)):
            raise NotImplementedError("windows of one size, of which torch makes max_pool2d")
        places = _places(before, after)
        flat = op.reshape(x, [*lead, int(np.prod(before))])
        windows = emit(op.take(emit(flat), relax.const(places, "int64"), len(lead)))
        values = emit(op.max(windows, -1))
        which = emit(op.argmax(windows, -1))
        # A place known by its window and its number within that.
        size = places.shape[1]
        numbers = np.arange(places.shape[0], dtype="int64") * size
        found = emit(op.add(which, relax.const(numbers, "int64")))
        index = emit(op.take(relax.const(places.reshape(-1), "int64"), found, 0))
        return [emit(op.reshape(each, [*lead, *after])) for each in (values, index)]

    return convert


def _places(before: list[int], after: list[int]) -> Any:
    """Where the numbers of each window lie (windows, numbers of the largest): a smaller one has
    its last place again, which comes first where it was."""
    axes = [_along(*extents) for extents in zip(before, after, strict=True)]
    windows, inside = [a.shape[0] for a in axes], [a.shape[1] for a in axes]
    places = np.zeros([*windows, *inside], "int64")
    for index, (axis, extent) in enumerate(zip(axes, before, strict=True)):
        shape = [1] * places.ndim
        shape[index], shape[index + len(axes)] = axis.shape
        places = places * extent + axis.reshape(shape)
    return places.reshape(int(np.prod(windows)), -1)


def _along(before: int, after: int) -> Any:
    """The numbers of each window of one axis, as torch divides it."""
    starts = [i * before // after for i in range(after)]
    ends = [-(-(i + 1) * before // after) for i in range(after)]
    widest = max(e - s for s, e in zip(starts, ends, strict=True))
    offsets = np.arange(widest)
    return np.minimum(np.array(starts)[:, None] + offsets, np.array(ends)[:, None] - 1)


#: By the name of the torch operator.
POOLING: dict[str, Callable[[Any, Node], Any]] = {
    "adaptive_max_pool2d.default": _adaptive_max(2),
    "adaptive_max_pool3d.default": _adaptive_max(3),
}
