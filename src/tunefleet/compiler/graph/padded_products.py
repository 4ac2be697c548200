"""Products as programs that pad what they read: the borders of convolutions, by a zero point where
there is one, and channels to what tensor instructions take at once.

Processors with registers for tiles (AMX) load rows that are equally far apart in memory. For these
rows of a number that divides into no tiles (the 197 of a vision transformer) are padded here too;
others repeat the address of the last one (`space/padded_rows.py`). A narrow picture has few such
pixels side by side, so its rows are laid one after the other, with one border between two of them:
then tiles are of several."""

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
#: A product that costs less than this share is worth a picture in another order.
_CHEAPER = 0.9
#: Rows of a picture that are added so that all divide into tiles, at most.
_MORE_ROWS = 3


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
#: Two 16-bit floats are the least that a GPU copies to shared memory by itself.
OF_HALVES = Terms("", "float32", 2)


def padded_weight(values: NDArray[Any], terms: Terms = OF_BYTES) -> NDArray[Any]:
    """[..., depth, columns] with zeros where instructions want more of them."""
    depth, columns = values.shape[-2:]
    if columns < LEAST_COLUMNS:
        return values
    more = [(0, -depth % terms.at_once), (0, -columns % _LANES)]
    return np.pad(values, [(0, 0)] * (values.ndim - 2) + more)


def padded_rows(rows: int) -> int:
    """So many rows, or a few more that divide into tiles."""
    if rows <= _MOST_ROWS or _tile(rows) >= _ENOUGH_ROWS:
        return rows
    return _best_rows(rows)


def _tile(extent: int) -> int:
    """The largest number of rows of a tile that divides an extent."""
    return next(n for n in range(_MOST_ROWS, 0, -1) if extent % n == 0)


def _cost(rows: int) -> int:
    """Of a product by tiles of rows that lie side by side: rows, and weights loaded for them."""
    tile = _tile(rows)
    return rows // tile * (max(tile, _ENOUGH_ROWS) + _WEIGHT_ROWS)


def _best_rows(rows: int) -> int:
    return min(range(rows, rows + _MOST_ROWS), key=_cost)


def _cropped(sums: Any, shape: Sequence[int]) -> Any:
    """The first of all, where there are more."""
    if ints(sums.shape) == list(shape):
        return sums
    return te.compute(tuple(shape), lambda *i: sums[i], name="columns")


def matmul(
    data: Any, weight: Any, columns: int, terms: Terms = OF_BYTES, *, tiles: bool = False
) -> Any:
    """`weight` of all rows, or of each matrix of the data its own. `tiles`: for a processor with
    registers for tiles."""
    *asked, own = ints(data.shape)
    *batch, depth, lanes = ints(weight.shape)
    outer = list(asked)
    if tiles:
        outer[-1:] = map(padded_rows, asked[-1:])
    after = [more - has for more, has in zip([*outer, depth], [*asked, own], strict=True)]
    if any(after):
        data = topi.nn.pad(data, [0] * len(after), after, tvm.tirx.const(0, data.dtype), "pad_temp")
    k = te.reduce_axis((0, depth), "k")

    def cell(*index: Any) -> Any:
        *rows, column = index
        own_weight = weight[(*rows[: len(batch)], k, column)]
        return te.sum(terms.product(data[(*rows, k)], own_weight), axis=k)

    return _cropped(te.compute((*outer, lanes), cell, name="matmul"), (*asked, columns))


def convolution(
    data: Any,
    weight: Any,
    widths: list[int],
    value: int,
    columns: int,
    attrs: Any,
    terms: Terms = OF_BYTES,
    *,
    tiles: bool = False,
) -> Any:
    """As TVM defines it, whose own would add a block that copies what is padded already. `tiles`:
    for a processor with registers for tiles."""
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
    shapes = ints(data.shape), ints(weight.shape)
    if tiles and (pixels := pixels_of(shapes, (height, width), widths, attrs)):
        sums = _of_pixels(pixels, data, weight, border, terms)
        return _cropped(sums, (batch, height, width, columns))
    computed = padded_rows(width) if groups == 1 and tiles else width
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


@dataclass(frozen=True, slots=True)
class Pixels:
    """A picture (batch, `reach` and more pixels, channels) whose rows follow each other, `across`
    pixels each: a border to its right is the one to the left of the next. A product has `rows` of
    them; its window looks `reach` pixels ahead."""

    rows: int
    across: int
    before: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    reach: int
    channels: int


def pixels_of(
    shapes: tuple[Sequence[int], Sequence[int]],
    result: tuple[int, int],
    widths: Sequence[int],
    attrs: Any,
) -> Pixels | None:
    """How a convolution's picture is laid out for tiles of several rows, None where such tiles cost
    no less. That needs steps of one, or a window of one, of which others are left out. `shapes` are
    those of data and weights (NHWC, HWIO), `result` height and width."""
    data, (rows, across, *_) = shapes
    strides, dilation = tuple(ints(attrs.strides)), tuple(ints(attrs.dilation))
    top, left, right, more = widths[2], widths[4], widths[5], widths[7]
    alone = (rows, across) == (1, 1) and not any(widths[2:6])
    if int(attrs.groups) != 1 or not (strides == (1, 1) or alone):
        return None
    high, wide = result
    width = wide if alone else max(wide, data[2] + max(left, right))
    computed = min(range(high, high + _MORE_ROWS + 1), key=lambda n: _cost(n * width))
    if _cost(computed * width) >= _CHEAPER * high * _cost(padded_rows(wide)):
        return None
    reach = (rows - 1) * dilation[0] * width + (across - 1) * dilation[1]
    return Pixels(
        computed, width, (top, left), (strides[0], strides[1]), (dilation[0], dilation[1]), reach,
        data[3] + more,
    )  # fmt: skip


def _of_pixels(pixels: Pixels, data: Any, weight: Any, border: Any, terms: Terms) -> Any:
    """The convolution (batch, rows, across, columns)."""
    batch, high, wide, channels = ints(data.shape)
    window, depth, outputs = ints(weight.shape)[:2], *ints(weight.shape)[2:]
    (top, left), across = pixels.before, pixels.across

    def pixel(n: Any, place: Any, c: Any) -> Any:
        # A row more, so that nothing is negative.
        at = place + (across - left if left else 0)
        y = at // across * pixels.strides[0] - top - (1 if left else 0)
        x = at % across * pixels.strides[1]
        inside = [y < high]
        inside += [y >= 0] if top or left else []
        inside += [x < wide] if across > wide else []
        inside += [c < channels] if pixels.channels > channels else []
        return tvm.tirx.if_then_else(tvm.tirx.all(*inside), data[n, y, x, c], border)

    shape = (batch, pixels.rows * across + pixels.reach, pixels.channels)
    laid = te.compute(shape, pixel, name="pad_temp")
    ry, rx = (te.reduce_axis((0, n), name) for n, name in zip(window, ("ry", "rx"), strict=True))
    rc = te.reduce_axis((0, depth), "rc")

    def cell(n: Any, y: Any, x: Any, o: Any) -> Any:
        tap = ry * (pixels.dilation[0] * across) + rx * pixels.dilation[1]
        product = terms.product(laid[n, y * across + x + tap, rc], weight[ry, rx, rc, o])
        return te.sum(product, axis=[ry, rx, rc])

    return te.compute((batch, pixels.rows, across, outputs), cell, name="conv2d_nhwc")
