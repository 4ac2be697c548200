"""Operators between quantised tensors, written as operators on floats between `dequantize` and
`quantize`: the graph pipeline makes integer programs of both forms alike
(`tunefleet.compiler.graph.quantized`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.activations import leaky_relu
from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    constant_value,
    relax,
    tvm,
)

op = relax.op
_DEQUANTIZE = tvm.ir.Op.get("relax.dequantize")


def _zero(node: Node, index: int, dtype: str) -> Any:
    return node.inputs[index] if node.has(index) else constant(0, dtype)


def dequantized(node: Node, index: int, axis: int = 0, factor: float = 1.0) -> Any:
    """An input that is followed by its scale and its zero point, as floats; `axis` is that of its
    scales where they are several, `factor` is multiplied into them."""
    x, scale = node.inputs[index], node.inputs[index + 1]
    if factor != 1.0:
        scale = constant(node.known(index + 1) * np.float32(factor), "float32")
    zero = _zero(node, index + 2, node.dtype(index))
    rank = max(1, len(node.shape(index)))
    return node.emit(op.dequantize(x, scale, zero, axis=axis % rank, out_dtype="float32"))


def quantized(node: Node, x: Any, index: int, dtype: str = "uint8") -> Any:
    """Floats by the scale and the zero point at `index`; `dtype` is that without a zero point."""
    zero = _zero(node, index + 1, dtype)
    x = node.emit(x)
    return op.quantize(x, node.inputs[index], zero, axis=0, out_dtype=str(zero.ty.dtype))


def _of_blocks(node: Node) -> Any:
    """Weights of which each block along an axis has its scale, as real numbers; TVM's own
    conversion is right where there are no blocks."""
    size = int(node.attrs.get("block_size", 0))
    if not size:
        return NotImplemented
    axis = int(node.attrs.get("axis", 1))
    numbers, points = node.known(0).astype("float32"), node.constant(2)

    def along(values: NDArray[Any]) -> NDArray[Any]:
        each = np.repeat(values.astype("float32"), size, axis)
        return each.take(np.arange(numbers.shape[axis]), axis)

    difference = numbers if points is None else numbers - along(points)
    return constant(difference * along(node.known(1)), node.dtype(1))


def _bias(node: Node, index: int, scale: Any) -> Any:
    """A bias of int32, which has the scale of the sums that it is added to."""
    scale = np.asarray(scale, "float32")
    zero = constant(np.zeros(scale.shape), "int32")
    bias = op.dequantize(
        node.inputs[index], constant(scale, "float32"), zero, axis=0, out_dtype="float32"
    )
    return node.emit(bias)


def _conv(node: Node) -> Any:
    attrs = dict(node.attrs)
    if attrs.pop("channels_last", 0):
        raise NotImplementedError("QLinearConv with channels last")
    weight = dequantized(node, 3, 0)
    x = node.emit(by_tvm(node, "Conv", [dequantized(node, 0), weight], attrs))
    if node.has(8):
        channels = [1, -1, *[1] * (len(node.shape(0)) - 2)]
        bias = _bias(node, 8, (node.known(1) * node.known(4)).reshape(node.known(4).shape))
        x = node.emit(x + node.emit(op.reshape(bias, channels)))
    return quantized(node, x, 6)


def _matmul(node: Node) -> Any:
    product = op.matmul(dequantized(node, 0), dequantized(node, 3, len(node.shape(3)) - 1))
    return quantized(node, product, 6)


def _gemm(node: Node) -> Any:
    """QGemm of ONNX Runtime: without a scale for its output, that is floats."""
    alpha = float(node.attrs.get("alpha", 1.0))
    turned = [bool(node.attrs.get(name, 0)) for name in ("transA", "transB")]
    sides = [dequantized(node, 0, factor=alpha), dequantized(node, 3, 0 if turned[1] else 1)]
    left, right = (
        node.emit(op.permute_dims(side, [1, 0])) if turn else side
        for side, turn in zip(sides, turned, strict=True)
    )
    x = node.emit(op.matmul(left, right))
    if node.has(6):
        scale = node.known(1) * np.float32(alpha) * node.known(4)
        x = node.emit(x + _bias(node, 6, scale.reshape(node.known(4).shape)))
    return quantized(node, x, 7) if node.has(7) else x


def _concat(node: Node) -> Any:
    parts = [dequantized(node, i) for i in range(2, len(node.inputs), 3)]
    return quantized(node, op.concat(parts, int(node.attrs["axis"])), 0)


def _global_average(node: Node) -> Any:
    if node.attrs.get("channels_last", 0):
        raise NotImplementedError("QLinearGlobalAveragePool with channels last")
    axes = list(range(2, len(node.shape(0))))
    return quantized(node, op.mean(dequantized(node, 0), axes, True), 3)


def _average_pool(node: Node) -> Any:
    attrs = dict(node.attrs)
    if attrs.pop("channels_last", 0):
        raise NotImplementedError("QLinearAveragePool with channels last")
    return quantized(node, by_tvm(node, "AveragePool", [dequantized(node, 0)], attrs), 3)


def _softmax(node: Node) -> Any:
    rank = len(node.shape(0))
    axis = int(node.attrs.get("axis", -1)) % rank
    if int(node.attrs.get("opset", 13)) < 13 and axis != rank - 1:
        raise NotImplementedError("QLinearSoftmax over several axes")
    return quantized(node, op.nn.softmax(dequantized(node, 0), axis), 3)


def _where(node: Node) -> Any:
    chosen = op.where(node.inputs[0], dequantized(node, 1), dequantized(node, 4))
    return quantized(node, chosen, 7)


def _of_one(function: Callable[[Node, Any], Any]) -> Rule:
    return lambda node: quantized(node, function(node, dequantized(node, 0)), 3)


def _of_two(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda node: quantized(node, function(dequantized(node, 0), dequantized(node, 3)), 6)


def _pad(node: Node) -> Any:
    """A border of a number that was quantised: TVM needs to know it."""
    value = node.input(2)
    if not isinstance(value, relax.Call) or value.op != _DEQUANTIZE:
        return NotImplemented
    number, scale, zero = (constant_value(arg) for arg in value.args)
    if number is None or scale is None or zero is None:
        return NotImplemented
    real = (number.astype("float32") - zero.astype("float32")) * scale
    inputs = [*node.inputs[:2], constant(real, str(value.ty.dtype)), *node.inputs[3:]]
    return by_tvm(node, "Pad", inputs, node.attrs)


def _same(node: Node) -> Any:
    return by_tvm(node, node.operator, node.inputs, node.attrs)


RULES: dict[tuple[str, str], Rule] = {
    ("", "DequantizeLinear"): _of_blocks,
    ("", "Pad"): _pad,
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    ("com.microsoft", "DequantizeLinear"): _same,
    ("com.microsoft", "QGemm"): _gemm,
    ("com.microsoft", "QLinearAdd"): _of_two(op.add),
    ("com.microsoft", "QLinearAveragePool"): _average_pool,
    ("com.microsoft", "QLinearConcat"): _concat,
    ("com.microsoft", "QLinearGlobalAveragePool"): _global_average,
    ("com.microsoft", "QLinearLeakyRelu"): _of_one(
        lambda node, x: leaky_relu(x, float(node.attrs.get("alpha", 0.01)))
    ),
    ("com.microsoft", "QLinearMul"): _of_two(op.multiply),
    ("com.microsoft", "QLinearSigmoid"): _of_one(lambda node, x: op.sigmoid(x)),
    ("com.microsoft", "QLinearSoftmax"): _softmax,
    ("com.microsoft", "QLinearWhere"): _where,
    ("com.microsoft", "QuantizeLinear"): _same,
}
