"""Images put together from windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op


def _col2im(node: Node) -> Any:
    """Overlapping windows added up: each pixel reads the elements that lie on it."""
    image, block = ([int(e) for e in node.constant(i)] for i in (1, 2))  # type: ignore[union-attr]
    batch, rows, windows = node.shape(0)
    taps = math.prod(block)
    table = _sources(image, block, node.attrs)
    channels = rows // taps
    flat = op.reshape(node.inputs[0], (batch, channels, taps * windows))
    nothing = relax.const(np.zeros((batch, channels, 1), node.dtype(0)))
    sources = node.emit(op.concat([node.emit(flat), nothing], 2))
    read = node.emit(op.take(sources, relax.const(table), 2))
    return op.reshape(node.emit(op.sum(read, 3)), (batch, channels, *image))


def _sources(image: list[int], block: list[int], attrs: dict[str, Any]) -> NDArray[np.int64]:
    """For every pixel, row by row, the numbers of the elements that lie on it, filled up with the
    number after the last. Elements count through the taps of a window, then through the windows."""
    rank = len(image)
    ones = [1] * rank
    dilations, strides = attrs.get("dilations") or ones, attrs.get("strides") or ones
    pads = attrs.get("pads") or [0] * 2 * rank
    pixel = np.zeros([1] * 2 * rank, "int64")
    inside = np.ones([1] * 2 * rank, "bool")
    for axis, (extent, size) in enumerate(zip(image, block, strict=True)):
        reach = extent + pads[axis] + pads[rank + axis] - dilations[axis] * (size - 1) - 1
        tap = np.arange(size)[:, None] * dilations[axis]
        place = tap + np.arange(reach // strides[axis] + 1) * strides[axis] - pads[axis]
        shape = [1] * 2 * rank
        shape[axis], shape[rank + axis] = place.shape
        pixel = pixel * extent + place.reshape(shape)
        inside = inside & ((place >= 0) & (place < extent)).reshape(shape)
    number = np.flatnonzero(inside)
    where = pixel[inside]
    counts = np.bincount(where, minlength=math.prod(image))
    table = np.full((counts.size, max(int(counts.max()), 1)), inside.size, "int64")
    order = np.argsort(where, kind="stable")
    turn = np.arange(where.size) - np.repeat(np.cumsum(counts) - counts, counts)
    table[where[order], turn] = number[order]
    return table


RULES: dict[tuple[str, str], Rule] = {("", "Col2Im"): _col2im}
