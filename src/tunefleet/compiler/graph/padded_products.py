"""Products as programs that pad what they read: the borders of convolutions, by a zero point where
there is one, channels to what tensor instructions take at once, and rows of a number that divides
into no tiles (the 197 of a vision transformer)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, widened

tvm = load_tvm()
te, topi = tvm.te, tvm.topi

#: Results of tensor instructions at once, the least of any.
_LANES = 4
#: Rows of the largest tile of a tensor instruction; those that a tile should have; what loading its
#: weights costs, in rows.
_MOST_ROWS, _ENOUGH_ROWS, _WEIGHT_ROWS = 16, 8, 6
#: Results below which a product is not worth such an instruction.
LEAST_COLUMNS = 8


#: Of NHWC.
_WIDTH = 2


@dataclass(frozen=True, slots=True)
class Terms:
    """What a product sums: numbers of both sides (as they are where `dtype` is empty) made those of
    the sums. Tensor instructions take so many terms at once."""

    dtype: str
    sums: str
    at_once: int

    def product(self, left: Any, right: Any) -> Any:
        left, right = (widened(each, self.dtype, self.sums) for each in (left, right))
        return left * right


OF_BYTES, OF_BFLOAT16 = Terms("", "int32", 4), Terms(BFLOAT16, "float32", 2)


def padded_weight(values: NDArray[Any], terms: Terms = OF_BYTES) -> NDArray[Any]:
    """[..., depth, columns] with zeros where instructions want more of them."""
    depth, columns = values.shape[-2:]
    if columns < LEAST_COLUMNS:
        return values
    more = [(0, -depth % terms.at_once), (0, -columns % _LANES)]
    return np.pad(values, [(0, 0)] * (values.ndim - 2) + more)


def padded_rows(rows: int) -> int:
    """So many rows, or a few more that divide into tiles."""

    def tile(extent: int) -> int:
        return next(n for n in range(_MOST_ROWS, 0, -1) if extent % n == 0)

    if rows <= _MOST_ROWS or tile(rows) >= _ENOUGH_ROWS:
        return rows
    return min(
        range(rows, rows + _MOST_ROWS),
        key=lambda extent: extent // tile(extent) * (tile(extent) + _WEIGHT_ROWS),
    )


def _cropped(sums: Any, shape: Sequence[int]) -> Any:
    """The first of all, where there are more."""
    if ints(sums.shape) == list(shape):
        return sums
    return te.compute(tuple(shape), lambda *i: sums[i], name="columns")


def matmul(data: Any, weight: Any, columns: int, terms: Terms = OF_BYTES) -> Any:
    *asked, own = ints(data.shape)
    depth, lanes = ints(weight.shape)
    outer = [*asked[:-1], *(padded_rows(rows) for rows in asked[-1:])]
    after = [more - has for more, has in zip([*outer, depth], [*asked, own], strict=True)]
    if any(after):
        data = topi.nn.pad(data, [0] * len(after), after, tvm.tirx.const(0, data.dtype), "pad_temp")
    k = te.reduce_axis((0, depth), "k")

    def cell(*index: Any) -> Any:
        *rows, column = index
        return te.sum(terms.product(data[(*rows, k)], weight[k, column]), axis=k)

    return _cropped(te.compute((*outer, lanes), cell, name="matmul"), (*asked, columns))


def convolution(
    data: Any,
    weight: Any,
    widths: list[int],
    value: int,
    columns: int,
    attrs: Any,
    terms: Terms = OF_BYTES,
) -> Any:
    """As TVM defines it, whose own would add a block that copies what is padded already."""
    groups, strides, dilation = int(attrs.groups), ints(attrs.strides), ints(attrs.dilation)
    border = tvm.tirx.const(value, data.dtype)
    batch, *extents, _ = (
        n + sum(widths[2 * i : 2 * i + 2]) for i, n in enumerate(ints(data.shape))
    )
    rows, across, inputs, outputs = ints(weight.shape)
    height, width = (
        (extent - (taps - 1) * step - 1) // stride + 1
        for extent, taps, step, stride in zip(
            extents, (rows, across), dilation, strides, strict=True
        )
    )
    computed = padded_rows(width) if groups == 1 else width
    more = (computed - width) * strides[1]
    padded = data
    if any(widths) or more:
        after = [w + more * (axis == _WIDTH) for axis, w in enumerate(widths[1::2])]
        padded = topi.nn.pad(data, widths[::2], after, border, name="pad_temp")
    ry, rx = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, across), "rx")
    rc = te.reduce_axis((0, inputs), "rc")

    def pixel(n: Any, y: Any, x: Any, o: Any) -> Any:
        row = y * strides[0] + ry * dilation[0]
        column = x * strides[1] + rx * dilation[1]
        channel = rc if groups == 1 else o // (outputs // groups) * inputs + rc
        product = terms.product(padded[n, row, column, channel], weight[ry, rx, rc, o])
        return te.sum(product, axis=[ry, rx, rc])

    name = "conv2d_nhwc" if groups == 1 else "group_conv2d_nhwc"
    sums = te.compute((batch, height, computed, outputs), pixel, name=name)
    return _cropped(sums, (batch, height, width, columns))
