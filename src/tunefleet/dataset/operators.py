"""FLOPs of AutoTVM's operators, from template names and argument shapes.

Exact by definition of the operator: 2 x output elements x terms per sum. A Winograd template counts
as the convolution that it computes, as in AutoTVM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import prod
from typing import Any

from tunefleet.dataset.flop_rules import UNKNOWN, Certainty, Flops, counted

Shape = tuple[int, ...]


def autotvm_flops(workload: str) -> Flops:
    """FLOPs of a workload in the codec's form: `[template, argument, ...]`.

    Convolutions (1d to 3d, grouped, depthwise, blocked layouts), dense and batch_matmul are exact.
    A transposed convolution is estimated: as a convolution over its dilated input, zeros included.
    """
    try:
        template, tensors, rest = _parsed(workload)
        return _operator_flops(template, tensors, rest)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        # A template with other arguments: not an error of the record.
        return UNKNOWN


def _parsed(workload: str) -> tuple[str, list[Shape], list[Any]]:
    """The template's name, the shapes of its tensors, and the remaining arguments."""
    template, *arguments = json.loads(workload)
    shapes = [_shape(argument) for argument in arguments]
    tensors = [shape for shape in shapes if shape]
    rest = [a for a, shape in zip(arguments, shapes, strict=True) if not shape]
    return str(template), tensors, rest


def _shape(argument: Any) -> Shape:
    """The shape in `["TENSOR", [1, 64], "float32"]`; empty for other values."""
    if not isinstance(argument, list) or len(argument) != 3 or argument[0] != "TENSOR":
        return ()
    sizes = argument[1]
    if not isinstance(sizes, list) or not all(isinstance(n, int) and n > 0 for n in sizes):
        return ()
    return tuple(sizes)


def _operator_flops(template: str, tensors: Sequence[Shape], rest: Sequence[Any]) -> Flops:
    name = template.lower()
    if "sparse" in name or "bitserial" in name or "deformable" in name:
        return UNKNOWN
    data, kernel = tensors[0], tensors[1]
    if "batch_matmul" in name:
        return _batch_matmul(data, kernel, [f for f in rest if isinstance(f, bool)])
    if "dense" in name or "matmul" in name:
        return _dense(data, kernel)
    if "conv" in name:
        return _convolution(name, data, kernel, rest)
    return UNKNOWN


def _exact(count: int, rule: str) -> Flops:
    return counted(count, Certainty.EXACT, rule)


def _dense(data: Shape, weight: Shape) -> Flops:
    """[M, K] by [N, K]; blocked as [M/m, K/k, m, k] by [N/n, K/k, n, k]."""
    if len(data) not in (2, 4) or len(weight) not in (2, 4):
        return UNKNOWN
    rows, columns = (prod(shape[::2]) for shape in (data, weight))
    reduced, check = (prod(shape[1::2]) for shape in (data, weight))
    return _exact(2 * rows * columns * reduced, "dense") if reduced == check else UNKNOWN


def _batch_matmul(left: Shape, right: Shape, transposed: Sequence[bool]) -> Flops:
    """[B, M, K] by [B, N, K], unless a flag transposes one of them."""
    first, second = (*transposed, False, True)[:2] if len(transposed) == 2 else (False, True)
    rows, reduced = left[1:][::-1] if first else left[1:]
    columns, check = right[1:] if second else right[1:][::-1]
    if reduced != check:
        return UNKNOWN
    return _exact(2 * max(left[0], right[0]) * rows * columns * reduced, "batch_matmul")


def _convolution(name: str, data: Shape, kernel: Shape, rest: Sequence[Any]) -> Flops:
    dims = 1 if "conv1d" in name else 3 if "conv3d" in name else 2
    if "hwcn" in name:
        batch, channels, size = data[3], data[2], data[:2]
    elif _channels_last(name):
        batch, channels, size = data[0], data[-1], data[1:-1]
    else:
        # NCHW, with blocks of channels (and batch) after it: NCHW16c, NCHW1n16c.
        blocks = data[2 + dims :]
        batch = data[0] * (blocks[0] if len(blocks) == 2 else 1)
        channels, size = data[1] * (blocks[-1] if blocks else 1), data[2 : 2 + dims]
    made, reduced, window = _kernel(name, kernel, dims)
    strides, padding, dilation = _geometry(name, rest, dims)
    transposed = "transpose" in name
    if transposed:
        made, reduced = reduced, made
        output = [
            (n - 1) * s + k - p for n, s, k, p in zip(size, strides, window, padding, strict=True)
        ]
    else:
        spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
        output = [
            (n + p - k) // s + 1 for n, s, k, p in zip(size, strides, spans, padding, strict=True)
        ]
    if min(output) < 1:
        return UNKNOWN
    positions = batch * prod(output) * prod(window)
    if "depthwise" in name:
        return _exact(2 * positions * made * reduced, "depthwise convolution")
    if transposed:
        return counted(2 * positions * made * reduced, Certainty.ESTIMATED, "zeros included")
    # Each output channel sums over the channels of its group, and groups divide the channels.
    if channels % reduced:
        return UNKNOWN
    return _exact(2 * positions * made * reduced, "convolution")


def _channels_last(name: str) -> bool:
    return re.search(r"_n(d?h)?wc($|[_.])", name) is not None


def _kernel(name: str, kernel: Shape, dims: int) -> tuple[int, int, Shape]:
    """Output channels, channels of a group, and the window.

    For a depthwise convolution the channels and their multiplier, in either order.
    """
    if "hwcn" in name or _channels_last(name):
        first, second = kernel[dims : dims + 2]
        return second, first, kernel[:dims]
    blocks = kernel[2 + dims :]
    if len(blocks) == 2:
        # NCHWc has the block of inputs before that of outputs, VTA after it.
        inner, outer = blocks if "nchwc" in name else blocks[::-1]
        return kernel[0] * outer, kernel[1] * inner, kernel[2 : 2 + dims]
    if len(blocks) == 3:
        # int8 of x86: [CO/o, CI/i, KH, KW, i/4, o, 4].
        return kernel[0] * blocks[1], kernel[1] * blocks[0] * blocks[2], kernel[2 : 2 + dims]
    return kernel[0], kernel[1], kernel[2 : 2 + dims]


def _geometry(name: str, rest: Sequence[Any], dims: int) -> tuple[Shape, Shape, Shape]:
    """Strides, total padding of both sides, and dilation, per dimension."""
    lists = [a for a in rest if isinstance(a, list) and all(isinstance(n, int) for n in a)]
    if name.startswith("topi_x86_conv2d"):
        # Its first list is the size of the kernel.
        lists = lists[1:]
    strides, padding, *more = lists
    sides = (
        [a + b for a, b in zip(padding[:dims], padding[dims:], strict=True)]
        if len(padding) == 2 * dims
        else [2 * n for n in padding]
    )
    dilation = more[0] if more and "transpose" not in name else [1] * dims
    return tuple(strides), tuple(sides), tuple(dilation)
