"""Products and convolutions: those that ONNX Runtime fuses, and forms that TVM makes wrong."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.frontends.onnx_operators.activations import ACTIVATIONS
from tunefleet.compiler.frontends.onnx_operators.delegate import by_tvm
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    dtype_of,
    relax,
    shape_of,
)

op = relax.op


def _scaled(x: Any, scale: float, dtype: str) -> Any:
    return x if scale == 1.0 else x * constant(scale, dtype)


def _fused_matmul(node: Node) -> Any:
    left = _turned(node, 0, "A")
    right = _turned(node, 1, "B")
    return _scaled(op.matmul(left, right), float(node.attrs.get("alpha", 1.0)), node.dtype(0))


def _turned(node: Node, index: int, side: str) -> Any:
    """An operand as [batch ..., rows, columns]; a batch that is transposed comes second to last."""
    rank = len(node.shape(index))
    order = list(range(rank))
    if rank > 1 and node.attrs.get(f"transBatch{side}", 0):
        order = [*range(1, rank - 1), 0, rank - 1]
    if rank > 1 and node.attrs.get(f"trans{side}", 0):
        order[-2:] = order[:-3:-1]
    x = node.inputs[index]
    return x if order == list(range(rank)) else node.emit(op.permute_dims(x, order))


def _fused_gemm(node: Node) -> Any:
    sides = [
        op.permute_dims(node.inputs[i], [1, 0]) if node.attrs.get(name, 0) else node.inputs[i]
        for i, name in enumerate(("transA", "transB"))
    ]
    product = op.matmul(*(node.emit(side) for side in sides))
    product = _scaled(product, float(node.attrs.get("alpha", 1.0)), node.dtype(0))
    if node.has(2):
        beta = float(node.attrs.get("beta", 1.0))
        product = product + _scaled(node.inputs[2], beta, node.dtype(0))
    parameters = [
        node.attrs[name] for name in ("activation_alpha", "activation_beta") if name in node.attrs
    ]
    return _activated(node, product, parameters)


def _fused_conv(node: Node) -> Any:
    own = ("activation", "activation_params")
    attrs = {name: value for name, value in node.attrs.items() if name not in own}
    x = by_tvm(node, "Conv", node.inputs[:3], attrs)
    if node.has(3):
        x = x + node.inputs[3]
    return _activated(node, x, node.attrs.get("activation_params", []))


def _activated(node: Node, x: Any, parameters: list[float]) -> Any:
    """`x` after the node's activation."""
    name = node.attrs.get("activation", "").lower()
    x = node.emit(x)
    if not name:
        return x
    if name == "clip":
        low, high = (constant(limit, dtype_of(x)) for limit in parameters)
        return op.minimum(op.maximum(x, low), high)
    if name not in ACTIVATIONS:
        raise NotImplementedError(f"{node.operator} with the activation {name}")
    function, alpha, beta = ACTIVATIONS[name]
    return function(x, *[*parameters, *(alpha, beta)[len(parameters) :]][:2])


def _conv_transpose(node: Node) -> Any:
    """TVM ignores output_shape, from which the padding follows."""
    wanted = node.attrs.get("output_shape")
    if not wanted:
        return NotImplemented
    spatial = node.shape(0)[2:]
    count = len(spatial)
    wanted = list(wanted)[-count:]
    strides = node.attrs.get("strides") or [1] * count
    dilations = node.attrs.get("dilations") or [1] * count
    extra = list(node.attrs.get("output_padding") or [0] * count)
    upper = node.attrs.get("auto_pad", "NOTSET") == "SAME_UPPER"
    before, after = [], []
    for i, extent in enumerate(shape_of(node.inputs[1])[2:]):
        full = strides[i] * (spatial[i] - 1) + extra[i] + (extent - 1) * dilations[i] + 1
        total = full - wanted[i]
        if total < 0:
            # ONNX Runtime then adds rows at the end.
            extra[i], total = extra[i] - total, 0
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    if any(pad >= stride for pad, stride in zip(extra, strides, strict=True)):
        raise NotImplementedError("ConvTranspose with more output padding than its stride")
    attrs = {k: v for k, v in node.attrs.items() if k not in ("output_shape", "auto_pad")}
    attrs |= {"pads": before + after, "output_padding": extra}
    return by_tvm(node, "ConvTranspose", node.inputs, attrs)


RULES: dict[tuple[str, str], Rule] = {
    ("", "ConvTranspose"): _conv_transpose,
    ("com.microsoft", "FusedConv"): _fused_conv,
    ("com.microsoft", "FusedGemm"): _fused_gemm,
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
}
