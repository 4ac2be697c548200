"""Products of 8-bit integers into int32, and networks quantised as they run: the scale and the zero
point of an activation follow from its values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, relax, shape_of

op = relax.op


def centered(node: Node, x: Any, zero: Any, axis: int | None = None) -> Any:
    """8-bit integers less their zero point, as int32; `axis` is that of the zero points where they
    are several. The form that `tunefleet.compiler.graph.quantized` looks for."""
    wide = node.emit(op.astype(x, "int32"))
    if zero is None:
        return wide
    points = node.emit(op.astype(zero, "int32"))
    shape, rank = shape_of(zero), len(shape_of(x))
    if not shape or set(shape) == {1}:
        points = node.emit(op.reshape(points, []))
    elif len(shape) == 1 and axis is not None:
        points = node.emit(op.reshape(points, [-1 if i == axis % rank else 1 for i in range(rank)]))
    elif len(shape) != rank:
        raise NotImplementedError("quantization by more than one axis")
    return node.emit(op.subtract(wide, points))


def _matmul(node: Node) -> Any:
    return op.matmul(
        centered(node, node.inputs[0], node.input(2), -2),
        centered(node, node.inputs[1], node.input(3), -1),
    )


def _conv(node: Node) -> Any:
    sides = [
        centered(node, node.inputs[0], node.input(2)),
        centered(node, node.inputs[1], node.input(3), 0),
    ]
    return by_tvm(node, "Conv", sides, node.attrs)


def quantized_by_values(node: Node, x: Any) -> tuple[Any, Any, Any]:
    """Floats as uint8, their scale and their zero point, both without axes: the range of the
    values, widened to 0, is that of the integers. Of nothing but zeros the scale is 1, as in ONNX
    Runtime."""
    none, most = constant(0, "float32"), constant(255, "float32")
    high = node.emit(op.maximum(op.max(x), none))
    low = node.emit(op.minimum(op.min(x), none))
    same = node.emit(op.equal(high, low))
    width = node.emit(op.subtract(high, low) / most)
    scale = node.emit(op.where(same, constant(1, "float32"), width))
    point = node.emit(op.subtract(none, low) / scale)
    point = node.emit(op.minimum(op.maximum(point, none), most))
    zero = node.emit(op.astype(op.round(point), "uint8"))
    return node.emit(op.quantize(x, scale, zero, axis=0, out_dtype="uint8")), scale, zero


def _dynamic_quantize(node: Node) -> Any:
    return quantized_by_values(node, node.inputs[0])


def scaled(node: Node, sums: Any, scale: Any, bias: Any) -> Any:
    """Sums as floats."""
    x = node.emit(op.multiply(op.astype(node.emit(sums), "float32"), scale))
    return x if bias is None else node.emit(op.add(x, bias))


def by_columns(node: Node, x: Any) -> Any:
    """A number, or one for each column of a product."""
    return node.emit(op.reshape(x, [] if int(np.prod(shape_of(x))) == 1 else [-1]))


def _matmul_to_float(node: Node) -> Any:
    """A, B, their scales, their zero points and a bias."""
    sums = op.matmul(
        centered(node, node.inputs[0], node.input(4)),
        centered(node, node.inputs[1], node.input(5), -1),
    )
    scale = op.multiply(*(by_columns(node, node.inputs[i]) for i in (2, 3)))
    return scaled(node, sums, node.emit(scale), node.input(6))


def _dynamic_matmul(node: Node) -> Any:
    """A in floats, B with its scale and zero point, and a bias."""
    x, scale, zero = quantized_by_values(node, node.inputs[0])
    sums = op.matmul(centered(node, x, zero), centered(node, node.inputs[1], node.input(3), -1))
    scale = node.emit(op.multiply(scale, by_columns(node, node.inputs[2])))
    return scaled(node, sums, scale, node.input(4))


RULES: dict[tuple[str, str], Rule] = {
    ("", "ConvInteger"): _conv,
    ("", "DynamicQuantizeLinear"): _dynamic_quantize,
    ("", "MatMulInteger"): _matmul,
    ("com.microsoft", "DynamicQuantizeMatMul"): _dynamic_matmul,
    ("com.microsoft", "MatMulIntegerToFloat"): _matmul_to_float,
}
