"""Convolutions of 3x3 with a quarter of the multiplications: Winograd's F(4x4, 3x3).

Tiles of 6x6 inputs become 36 products of matrices, [tiles, inputs] x [inputs, outputs], whose sums
become tiles of 4x4 outputs (Lavin and Gray 2015, https://arxiv.org/abs/1509.09308). Weights are
transformed when the network is compiled. Errors of float32 grow to some 1e-5 of the largest output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.forms import WINOGRAD_BLOCK

tvm = load_tvm()
te, topi = tvm.te, tvm.topi

#: Outputs and inputs along a side of a tile.
_TILE, _READ = 4, 6
_PRODUCTS = _READ * _READ
_POINTS = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
           [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]  # fmt: skip
_INPUT = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
          [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]  # fmt: skip
_OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]

#: Channels that a transform takes at once: a register of AVX-512.
_VECTOR = 16

#: Blocks of the two transforms.
_INPUT_BLOCK, _OUTPUT_BLOCK = "winograd_input", "winograd_output"

#: Names of the schedules of the two transforms, by which MetaSchedule finds them.
_INPUT_RULE, _OUTPUT_RULE = "tunefleet_winograd_input", "tunefleet_winograd_output"


#: What a byte that is moved costs, in floating-point operations: its products are written and read
#: once, its weights are four times as many.
_PER_BYTE = 8
#: Of the direct form's cost, at most this.
_WORTH = 0.8


def pays(call: Any) -> bool:
    """Whether a convolution (Relax, NHWC, HWIO) can be computed so, and may be faster then: which
    of both is, the search measures."""
    attrs, (data, weight) = call.attrs, call.args
    if (
        (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NHWC", "HWIO")
        or not isinstance(weight, tvm.ir.GenericConst)
        or {str(data.ty.dtype), str(weight.ty.dtype), str(call.ty.dtype)} != {"float32"}
        or {*ints(attrs.strides), *ints(attrs.dilation), int(attrs.groups)} != {1}
    ):
        return False
    rows, columns, inputs, outputs = ints(weight.ty.shape.values)
    if (rows, columns) != (3, 3) or inputs % _VECTOR or outputs % _VECTOR:
        return False
    batch, height, width, _ = ints(call.ty.shape.values)
    tiles = batch * -(-height // _TILE) * -(-width // _TILE)
    moved = 2 * _PRODUCTS * tiles * (inputs + outputs) + (_PRODUCTS - 9) * inputs * outputs
    cost = 2 * _PRODUCTS * tiles * inputs * outputs + _PER_BYTE * 4 * moved
    return bool(cost <= _WORTH * 18 * batch * height * width * inputs * outputs)


def fitting(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A task's argument as a program of this form takes it."""
    return array if array.shape == shape else transformed(array)


def transformed(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """HWIO -> [36, I, O]."""
    points = np.array(_POINTS)
    products: NDArray[np.float64] = np.einsum(
        "eh,fw,hwio->efio", points, points, weight.astype(np.float64)
    )
    return products.reshape(_PRODUCTS, *weight.shape[2:]).astype(np.float32)


def convolution(data: Any, weight: Any, padding: Sequence[int]) -> Any:
    """NHWC `data` with `weight` as `transformed` makes it.

    `padding` is that of the top, the left, the bottom and the right.
    """
    batch, rows, columns, inputs = ints(data.shape)
    outputs = int(weight.shape[2])
    top, left, bottom, right = padding
    height, width = rows + top + bottom - 2, columns + left + right - 2
    down, across = -(-height // _TILE), -(-width // _TILE)
    tiles = batch * down * across

    def pixel(t: Any, i: Any, j: Any, c: Any) -> Any:
        row = t // across % down * _TILE + i - top
        column = t % across * _TILE + j - left
        inside = tvm.tirx.all(row >= 0, row < rows, column >= 0, column < columns)
        return tvm.tirx.if_then_else(
            inside, data[t // (down * across), row, column, c], tvm.tirx.const(0, data.dtype)
        )

    columns_of = te.compute(
        (tiles, _READ, _READ, inputs),
        lambda t, e, j, c: _combined(_INPUT, e, lambda i: pixel(t, i, j, c)),
        name="input_columns",
        attrs={"schedule_rule": "None"},
    )
    spread = te.compute(
        (_PRODUCTS, tiles, inputs),
        lambda p, t, c: _combined(_INPUT, p % _READ, lambda j: columns_of[t, p // _READ, j, c]),
        name=_INPUT_BLOCK,
        attrs={"schedule_rule": _INPUT_RULE},
    )
    k = te.reduce_axis((0, inputs), "k")
    products = te.compute(
        (_PRODUCTS, tiles, outputs),
        lambda p, t, o: te.sum(spread[p, t, k] * weight[p, k, o], axis=[k]),
        name=WINOGRAD_BLOCK,
    )
    rows_of = te.compute(
        (tiles, _TILE, _READ, outputs),
        lambda t, y, f, o: _combined(_OUTPUT, y, lambda e: products[e * _READ + f, t, o]),
        name=_OUTPUT_BLOCK,
        attrs={"schedule_rule": _OUTPUT_RULE},
    )
    return te.compute(
        (batch, height, width, outputs),
        lambda n, y, x, o: _combined(
            _OUTPUT,
            x % _TILE,
            lambda f: rows_of[(n * down + y // _TILE) * across + x // _TILE, y % _TILE, f, o],
        ),
        name="conv2d_winograd",
        attrs={"schedule_rule": "None"},
    )


def _combined(matrix: Sequence[Sequence[float]], row: Any, value: Any) -> Any:
    """A row of the matrix times a vector. Schedules unroll the loop of `row`: what is left of the
    choice are its additions."""
    sums = []
    for factors in matrix:
        terms = [
            value(i) if factor == 1 else value(i) * tvm.tirx.const(factor, "float32")
            for i, factor in enumerate(factors)
            if factor
        ]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        sums.append(total)
    chosen = sums[-1]
    for i, total in reversed(list(enumerate(sums[:-1]))):
        chosen = tvm.tirx.Select(row == i, total, chosen)
    return chosen


@tvm.register_global_func(f"s_tir.meta_schedule.cpu.{_INPUT_RULE}")  # type: ignore[untyped-decorator]
def _input_rule(schedule: Any, block: Any) -> list[Any]:
    _schedule_input(schedule, block, _VECTOR)
    return [schedule]


@tvm.register_global_func(f"s_tir.meta_schedule.cpu.{_OUTPUT_RULE}")  # type: ignore[untyped-decorator]
def _output_rule(schedule: Any, block: Any) -> list[Any]:
    _schedule_output(schedule, block, _VECTOR)
    return [schedule]


def schedule_transforms(schedule: Any, vector: int) -> None:
    """Schedule both transforms of a program of this form, `vector` channels at a time."""
    _schedule_input(schedule, schedule.get_sblock(_INPUT_BLOCK), vector)
    _schedule_output(schedule, schedule.get_sblock(_OUTPUT_BLOCK), vector)


def _schedule_input(schedule: Any, block: Any, vector: int) -> None:
    """A tile and a vector of channels at a time, both transforms in registers."""
    products, tile, channel = schedule.get_loops(block)
    outer, inner = schedule.split(channel, [None, vector])
    schedule.reorder(tile, outer, products, inner)
    (columns,) = schedule.get_producers(block)
    schedule.compute_at(columns, outer)
    *_, row, column, channels = schedule.get_loops(columns)
    for loop in (row, column, products):
        schedule.unroll(loop)
    schedule.vectorize(channels)
    schedule.vectorize(inner)
    schedule.parallel(schedule.fuse(tile, outer))


def _schedule_output(schedule: Any, block: Any, vector: int) -> None:
    """A tile and a vector of channels at a time, with all that follows the convolution."""
    (last,) = schedule.get_consumers(block)
    while following := schedule.get_consumers(last):
        schedule.compute_inline(last)
        (last,) = following
    batch, row, column, channel = schedule.get_loops(last)
    down, y = schedule.split(row, [None, _TILE])
    across, x = schedule.split(column, [None, _TILE])
    outer, inner = schedule.split(channel, [None, vector])
    schedule.reorder(batch, down, across, outer, y, x, inner)
    schedule.compute_at(block, outer)
    *_, rows, products, channels = schedule.get_loops(block)
    for loop in (rows, products, y, x):
        schedule.unroll(loop)
    schedule.vectorize(channels)
    schedule.vectorize(inner)
    schedule.parallel(schedule.fuse(batch, down, across, outer))
