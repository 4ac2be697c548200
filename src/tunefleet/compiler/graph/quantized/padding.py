"""Products of integers as programs that pad what they read: the borders of convolutions by a zero
point, and channels to what tensor instructions take at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import Array, tvm

te, topi = tvm.te, tvm.topi


#: Terms that tensor instructions of 8-bit integers sum at once, and the least of their results.
_DEPTH, _LANES = 4, 4
#: Results below which a product is not worth such an instruction.
_LEAST_COLUMNS = 8


def padded_weight(values: Array) -> Array:
    """[..., depth, columns] with zeros where instructions want more of them."""
    depth, columns = values.shape[-2:]
    if columns < _LEAST_COLUMNS:
        return values
    more = [(0, -depth % _DEPTH), (0, -columns % _LANES)]
    return np.pad(values, [(0, 0)] * (values.ndim - 2) + more)


def _cropped(sums: Any, columns: int) -> Any:
    """The first `columns` of all, where there are more."""
    shape = ints(sums.shape)
    if shape[-1] == columns:
        return sums
    return te.compute((*shape[:-1], columns), lambda *i: sums[i], name="columns")


def matmul(data: Any, weight: Any, columns: int) -> Any:
    *outer, own = ints(data.shape)
    depth, lanes = ints(weight.shape)
    if depth != own:
        after = [0] * len(outer) + [depth - own]
        data = topi.nn.pad(data, [0] * len(after), after, tvm.tirx.const(0, data.dtype), "pad_temp")
    k = te.reduce_axis((0, depth), "k")

    def cell(*index: Any) -> Any:
        *rows, column = index
        product = data[(*rows, k)].astype("int32") * weight[k, column].astype("int32")
        return te.sum(product, axis=k)

    return _cropped(te.compute((*outer, lanes), cell, name="matmul"), columns)


def convolution(
    data: Any, weight: Any, widths: list[int], value: int, columns: int, attrs: Any
) -> Any:
    """As TVM defines it, whose own would add a block that copies what is padded already."""
    groups, strides, dilation = int(attrs.groups), ints(attrs.strides), ints(attrs.dilation)
    border = tvm.tirx.const(value, data.dtype)
    padded = data
    if any(widths):
        padded = topi.nn.pad(data, widths[::2], widths[1::2], border, name="pad_temp")
    batch, *extents, _ = ints(padded.shape)
    rows, across, inputs, outputs = ints(weight.shape)
    height, width = (
        (extent - (taps - 1) * step - 1) // stride + 1
        for extent, taps, step, stride in zip(
            extents, (rows, across), dilation, strides, strict=True
        )
    )
    ry, rx = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, across), "rx")
    rc = te.reduce_axis((0, inputs), "rc")

    def pixel(n: Any, y: Any, x: Any, o: Any) -> Any:
        row = y * strides[0] + ry * dilation[0]
        column = x * strides[1] + rx * dilation[1]
        channel = rc if groups == 1 else o // (outputs // groups) * inputs + rc
        product = padded[n, row, column, channel].astype("int32") * weight[ry, rx, rc, o].astype(
            "int32"
        )
        return te.sum(product, axis=[ry, rx, rc])

    name = "conv2d_nhwc" if groups == 1 else "group_conv2d_nhwc"
    sums = te.compute((batch, height, width, outputs), pixel, name=name)
    return _cropped(sums, columns)
