"""Operators on quantized tensors, with the integer sums and the rounding of ONNX Runtime.

Elementwise operators go through floats, as there; a value just between two integers may fall to the
other one, since ONNX Runtime multiplies in another order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.activations import leaky_relu
from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    relax,
)

op = relax.op


def _known(node: Node, index: int) -> NDArray[Any]:
    value = node.constant(index)
    if value is None:
        raise NotImplementedError(f"{node.operator} without input {index}")
    return value


def _centered(node: Node, index: int, zero: int, axis: int | None = None) -> Any:
    """An input as int32 around zero; `axis` is that of its zero points, where they are several."""
    points = node.constant(zero)
    wide = op.astype(node.inputs[index], "int32")
    if points is None or not points.any():
        return node.emit(wide)
    return node.emit(wide - constant(_along(points, node.shape(index), axis), "int32"))


def _along(values: NDArray[Any], shape: tuple[int, ...], axis: int | None) -> NDArray[Any]:
    if values.size == 1:
        return values.reshape(())
    if axis is None or values.ndim != 1:
        raise NotImplementedError("quantization by more than one axis")
    return values.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])


def _rounded(x: Any, zero: Any, dtype: str) -> Any:
    """Floats as integers around `zero`, within the range of `dtype`."""
    limits = np.iinfo(dtype)
    shifted = op.round(x) + constant(zero, "float32")
    low, high = constant(limits.min, "float32"), constant(limits.max, "float32")
    return op.astype(op.minimum(op.maximum(shifted, low), high), dtype)


def _zero(node: Node, index: int) -> tuple[NDArray[Any], str]:
    point = node.constant(index)
    return (np.array(0), "uint8") if point is None else (point.reshape(()), str(point.dtype))


def _matmul(node: Node) -> Any:
    rank = len(node.shape(3))
    left = _centered(node, 0, 2, None)
    right = _centered(node, 3, 5, rank - 1)
    sums = op.matmul(left, right, "int32")
    scale = _known(node, 1) * _along(_known(node, 4), (1, 1), 1) / _known(node, 6)
    floats = op.astype(node.emit(sums), "float32") * constant(
        scale.reshape(scale.shape[-1:]), "float32"
    )
    return _rounded(floats, *_zero(node, 7))


def _convolved(node: Node, x: Any, weight: Any) -> Any:
    return node.emit(by_tvm(node, "Conv", [x, weight], node.attrs))


def _conv(node: Node) -> Any:
    sums = _convolved(node, _centered(node, 0, 2), _centered(node, 3, 5, 0))
    channels = [1, -1, *[1] * (len(node.shape(0)) - 2)]
    if node.has(8):
        sums = sums + op.reshape(node.inputs[8], channels)
    scale = np.asarray(_known(node, 1) * _known(node, 4) / _known(node, 6))
    scale = scale.reshape(channels if scale.size > 1 else ())
    floats = op.astype(node.emit(sums), "float32") * constant(scale, "float32")
    return _rounded(floats, *_zero(node, 7))


def _conv_integer(node: Node) -> Any:
    return _convolved(node, _centered(node, 0, 2), _centered(node, 1, 3, 0))


def _real(node: Node, index: int) -> Any:
    """An input that is followed by its scale and its zero point, as floats."""
    zero = node.constant(index + 2)
    x = op.astype(node.inputs[index], "float32")
    if zero is not None:
        x = x - constant(zero.reshape(()), "float32")
    return node.emit(x * constant(_known(node, index + 1).reshape(()), "float32"))


def _requantized(node: Node, x: Any, index: int) -> Any:
    """Floats by the scale and the zero point at `index`."""
    scale = constant(_known(node, index).reshape(()), "float32")
    return _rounded(node.emit(x) / scale, *_zero(node, index + 1))


def _concat(node: Node) -> Any:
    parts = [_real(node, i) for i in range(2, len(node.inputs), 3)]
    return _requantized(node, op.concat(parts, int(node.attrs["axis"])), 0)


def _global_average(node: Node) -> Any:
    if node.attrs.get("channels_last", 0):
        raise NotImplementedError("QLinearGlobalAveragePool with channels last")
    axes = list(range(2, len(node.shape(0))))
    return _requantized(node, op.mean(_real(node, 0), axes, True), 3)


def _leaky(node: Node) -> Any:
    return _requantized(node, leaky_relu(_real(node, 0), float(node.attrs.get("alpha", 0.01))), 3)


def _few_bits(node: Node) -> Any:
    """MatMulNBits: the weights are unpacked at import."""
    attrs = node.attrs
    bits, block = int(attrs["bits"]), int(attrs["block_size"])
    rows, width = int(attrs["N"]), int(attrs["K"])
    if bits not in (2, 4, 8) or node.has(4):
        raise NotImplementedError("MatMulNBits with reordered groups or other than 2, 4 or 8 bits")
    blocks = math.ceil(width / block)
    numbers = _unpacked(_known(node, 1).reshape(rows, -1), bits).reshape(rows, blocks, block)
    points = node.constant(3)
    if points is None:
        zeros: Any = 2 ** (bits - 1)
    elif points.dtype == np.uint8:
        zeros = _unpacked(points.reshape(rows, -1), bits)[:, :blocks, None]
    else:
        zeros = points.reshape(rows, blocks, 1)
    scales = _known(node, 2).reshape(rows, blocks, 1).astype("float32")
    weights = ((numbers - np.asarray(zeros, "float32")) * scales).reshape(rows, -1)[:, :width]
    product = op.matmul(node.inputs[0], constant(weights.T, node.dtype(0)))
    return product + node.inputs[5] if node.has(5) else product


def _unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Small numbers, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    small: NDArray[np.uint8] = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return small.reshape(packed.shape[0], -1)


def _same(node: Node) -> Any:
    return by_tvm(node, node.operator, node.inputs, node.attrs)


RULES: dict[tuple[str, str], Rule] = {
    ("", "ConvInteger"): _conv_integer,
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    ("com.microsoft", "DequantizeLinear"): _same,
    ("com.microsoft", "MatMulNBits"): _few_bits,
    ("com.microsoft", "QLinearAdd"): lambda node: _requantized(
        node, _real(node, 0) + _real(node, 3), 6
    ),
    ("com.microsoft", "QLinearConcat"): _concat,
    ("com.microsoft", "QLinearGlobalAveragePool"): _global_average,
    ("com.microsoft", "QLinearLeakyRelu"): _leaky,
    ("com.microsoft", "QLinearMul"): lambda node: _requantized(
        node, _real(node, 0) * _real(node, 3), 6
    ),
    ("com.microsoft", "QLinearSigmoid"): lambda node: _requantized(
        node, op.sigmoid(_real(node, 0)), 3
    ),
    ("com.microsoft", "QuantizeLinear"): _same,
}
