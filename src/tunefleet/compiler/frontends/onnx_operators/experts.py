"""Mixtures of experts: every row through the best few of many small networks, and their mean."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tunefleet.compiler.frontends.experts import rows_by_expert
from tunefleet.compiler.frontends.onnx_operators.activations import gelu_tanh
from tunefleet.compiler.frontends.onnx_operators.few_bits import unpacked_weights
from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, relax, shape_of

op = relax.op

Array = NDArray[Any]


def _moe(node: Node) -> Any:
    _refuse(node, (6, 7))
    biases = node.constant(3), node.constant(5)
    normalized = bool(node.attrs.get("normalize_routing_weights", 0))
    return _mixture(node, (node.known(2), node.known(4)), biases, normalized)


def _quantized_moe(node: Node) -> Any:
    """Weights of a few bits, unpacked at import. The weights of experts always add up to one."""
    _refuse(node, (8, 9, 10, 13, 14, 15, 16, 17, 18, 19, 20))
    attrs = node.attrs
    bits, prepacked = int(attrs.get("expert_weight_bits", 4)), attrs.get("weights_prepacked", -1)
    own = {attrs.get(f"fc{which}_expert_weight_bits", bits) for which in (1, 2)}
    integers = attrs.get("quant_type", "int") == "int"
    if bits not in (4, 8) or own != {bits} or prepacked == 1 or not integers:
        raise NotImplementedError("QMoE but with weights of 4 or 8 bits in the order of ONNX")
    if bits == 8 and attrs.get("block_size", 0):
        # It rounds what they multiply, whatever it is asked for (1.31): nothing tells that this is
        # right.
        raise NotImplementedError("QMoE with blocks of 8 bits, which ONNX Runtime rounds")
    first, second = (
        _unpacked(node.known(at), node.known(at + 1), node.constant(zeros), bits, attrs)
        for at, zeros in ((2, 11), (5, 12))
    )
    return _mixture(node, (first, second), (node.constant(4), node.constant(7)), True)


def _refuse(node: Node, inputs: tuple[int, ...]) -> None:
    if node.attrs.get("use_sparse_mixer", 0) or any(node.has(index) for index in inputs):
        raise NotImplementedError(f"{node.operator} with a third product, or scales of its own")


def _unpacked(
    packed: Array, scales: Array, points: Array | None, bits: int, attrs: dict[str, Any]
) -> Array:
    """Floats (experts, rows, numbers)."""
    experts, rows, taken = packed.shape
    width = taken * 8 // bits
    block = int(attrs.get("block_size", 0)) or width
    scales = scales.reshape(experts * rows, -1)
    floats = unpacked_weights(packed.reshape(experts * rows, -1), scales, points, bits, block)
    return floats[:, :width].reshape(experts, rows, width)


def _mixture(
    node: Node, weights: tuple[Array, Array], biases: tuple[Array | None, ...], whole: bool
) -> Any:
    """`whole`: the weights of the experts of a row add up to one."""
    dtype, shape = node.dtype(0), node.shape(0)
    x = node.emit(op.reshape(node.inputs[0], (-1, shape[-1])))
    count = int(node.attrs.get("k", 1))
    chances = node.emit(op.nn.softmax(node.inputs[1], -1))
    top = node.emit(op.topk(chances, count, -1, "both", True, "int64"))
    said = node.emit(op.reshape(top[0], (-1, count, 1)))
    if whole:
        said = op.divide(said, op.sum(said, [1], keepdims=True))
    expert = node.emit(op.reshape(top[1], (-1,)))
    repeated = node.emit(op.repeat(x, count, 0))

    def product(rows: Any, which: int) -> Any:
        by = constant(weights[which].transpose(0, 2, 1), dtype)
        call = node.builder.emit_te(
            rows_by_expert, node.emit(rows), by, expert, primfunc_name_hint="grouped_matmul"
        )
        bias = biases[which]
        if bias is None:
            return call
        return node.emit(op.add(call, op.take(constant(bias, dtype), expert, 0)))

    inner = _activated(node, product(repeated, 0))
    outer = op.reshape(product(inner, 1), (-1, count, shape[-1]))
    return op.reshape(op.sum(op.multiply(outer, said), [1]), shape)


def _activated(node: Node, x: Any) -> Any:
    attrs, dtype = node.attrs, node.dtype(0)
    kind = attrs.get("activation_type", "relu")
    if kind != "swiglu":
        return _ACTIVATIONS[kind](x)
    if attrs.get("swiglu_fusion", 0) != 1:
        raise NotImplementedError(f"{node.operator} by SwiGLU whose halves lie apart")
    alpha, beta = (
        constant(attrs.get(f"activation_{name}", default), dtype)
        for name, default in (("alpha", 1.0), ("beta", 0.0))
    )
    rows, width = shape_of(x)
    both = node.emit(op.split(op.reshape(x, (rows, width // 2, 2)), 2, 2))
    gate, linear = (op.squeeze(both[side], [2]) for side in range(2))
    if "swiglu_limit" in attrs:
        limit = float(attrs["swiglu_limit"])
        gate = op.minimum(gate, constant(limit, dtype))
        linear = op.clip(linear, -limit, limit)
    gate = node.emit(gate)
    return gate * op.sigmoid(gate * alpha) * (linear + beta)


_ACTIVATIONS = {
    "gelu": gelu_tanh,
    "identity": lambda x: x,
    "relu": op.nn.relu,
    "silu": op.nn.silu,
}

RULES: dict[tuple[str, str], Rule] = {
    ("com.microsoft", "MoE"): _moe,
    ("com.microsoft", "QMoE"): _quantized_moe,
}
