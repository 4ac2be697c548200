"""Normalizations, with what ONNX Runtime fuses into them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    dtype_of,
    relax,
    shape_of,
)

op = relax.op


def _axes(node: Node) -> list[int]:
    rank = len(node.shape(0))
    return list(range(int(node.attrs.get("axis", -1)) % rank, rank))


def _moments(node: Node, x: Any, axes: list[int]) -> tuple[Any, Any]:
    """Mean and reciprocal of the standard deviation along `axes`, which stay as ones."""
    epsilon = constant(node.attrs.get("epsilon", 1e-5), dtype_of(x))
    mean = node.emit(op.mean(x, axes, True))
    away = node.emit(x - mean)
    variance = node.emit(op.mean(away * away, axes, True))
    return mean, node.emit(op.rsqrt(variance + epsilon))


def _layer_norm(node: Node, x: Any, axes: list[int], scale: Any, bias: Any, epsilon: float) -> Any:
    extents = tuple(shape_of(x)[axis] for axis in axes)
    dtype = dtype_of(x)
    scale = constant(np.ones(extents), dtype) if scale is None else scale
    if bias is None:
        bias = constant(np.zeros(extents), dtype)
    scale, bias = (
        p if shape_of(p) == extents else node.emit(op.broadcast_to(p, extents))
        for p in (scale, bias)
    )
    return node.emit(op.nn.layer_norm(x, scale, bias, axes, epsilon))


def _rms_norm(node: Node, x: Any, axes: list[int], scale: Any, epsilon: float) -> Any:
    dtype = dtype_of(x)
    wide = x if dtype in ("float32", "float64") else op.astype(x, "float32")
    square = node.emit(op.mean(wide * wide, axes, True))
    scaled = wide * op.rsqrt(
        square + constant(epsilon, "float64" if dtype == "float64" else "float32")
    )
    return node.emit((scaled if wide is x else op.astype(scaled, dtype)) * scale)


def _layer(node: Node) -> Any:
    x, axes = node.inputs[0], _axes(node)
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    output = _layer_norm(node, x, axes, node.inputs[1], node.input(2), epsilon)
    if not node.wants(1) and not node.wants(2):
        return output
    return [output, *_moments(node, x, axes)]


def _rms(node: Node) -> Any:
    if node.wants(1):
        raise NotImplementedError(f"{node.operator} that gives out its deviations")
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    return _rms_norm(node, node.inputs[0], _axes(node), node.inputs[1], epsilon)


def _skipped(node: Node, bias: int) -> Any:
    """The sum of input, skip and bias."""
    if node.wants(1) or node.wants(2):
        raise NotImplementedError(f"{node.operator} that gives out its moments")
    total = node.inputs[0] + node.inputs[1]
    if node.has(bias):
        total = total + node.inputs[bias]
    return node.emit(total)


def _skip_layer(node: Node) -> list[Any]:
    total = _skipped(node, 4)
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    axes = [len(shape_of(total)) - 1]
    output = _layer_norm(node, total, axes, node.inputs[2], node.input(3), epsilon)
    return [output, None, None, total]


def _skip_rms(node: Node) -> list[Any]:
    total = _skipped(node, 3)
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    axes = [len(shape_of(total)) - 1]
    return [_rms_norm(node, total, axes, node.inputs[2], epsilon), None, None, total]


def _embed(node: Node) -> list[Any]:
    """The sum of word, position and segment embeddings, normalized; and the lengths by the mask."""
    ids, (batch, tokens) = node.inputs[0], node.shape(0)

    def looked_up(table: Any, indices: Any) -> Any:
        rows = op.take(table, op.reshape(indices, (batch * tokens,)), 0, mode="clip")
        return node.emit(op.reshape(rows, (batch, tokens, shape_of(table)[1])))

    total = looked_up(node.inputs[2], ids)
    if node.has(8):
        positions = op.broadcast_to(node.inputs[8], (batch, tokens))
        total = node.emit(total + looked_up(node.inputs[3], positions))
    else:
        total = node.emit(total + op.strided_slice(node.inputs[3], [0], [0], [tokens]))
    if node.has(1) and node.has(4):
        total = node.emit(total + looked_up(node.inputs[4], node.inputs[1]))
    epsilon = float(node.attrs.get("epsilon", 1e-12))
    output = _layer_norm(node, total, [2], node.inputs[5], node.inputs[6], epsilon)
    lengths = constant(np.zeros(batch), "int32")
    if node.has(7) and node.attrs.get("mask_index_type", 1):
        lengths = op.sum(node.inputs[7], [1])
    return [output, lengths, total]


def _group(node: Node) -> Any:
    """GroupNormalization; before opset 21 scale and bias are of groups, not of channels."""
    x, channels, groups = node.inputs[0], node.shape(0)[1], int(node.attrs["num_groups"])
    scale, bias = node.inputs[1], node.inputs[2]
    if shape_of(scale) == (groups,) and groups != channels:
        if node.opset >= 21:
            raise NotImplementedError("GroupNormalization with a scale of another length")
        each = channels // groups
        scale, bias = (node.emit(op.repeat(x, each, 0)) for x in (scale, bias))
    axes, epsilon = _after_channels(node), float(node.attrs.get("epsilon", 1e-5))
    return op.nn.group_norm(x, scale, bias, groups, 1, axes, epsilon)


def _instance(node: Node) -> Any:
    x, scale, bias = node.inputs[:3]
    axes, epsilon = _after_channels(node), float(node.attrs.get("epsilon", 1e-5))
    return op.nn.instance_norm(x, scale, bias, 1, axes, epsilon)


def _after_channels(node: Node) -> list[int]:
    return list(range(2, len(node.shape(0))))


def _mean_variance(node: Node) -> Any:
    """MeanVarianceNormalization, which adds nothing to the variance."""
    shape = node.shape(0)
    axes = sorted({int(a) % len(shape) for a in node.attrs.get("axes", (0, 2, 3))})
    return _layer_norm(node, node.inputs[0], axes, None, None, 0.0)


def _lp(node: Node) -> Any:
    """LpNormalization, which leaves zeros where the norm is zero."""
    x, axis = node.inputs[0], [int(node.attrs.get("axis", -1))]
    if node.attrs.get("p", 2) == 1:
        norm = op.sum(op.abs(x), axis, True)
    else:
        norm = op.sqrt(op.sum(node.emit(x * x), axis, True))
    norm = node.emit(norm)
    zero = constant(0.0, node.dtype(0))
    return op.where(op.equal(norm, zero), zero, x / norm)


RULES: dict[tuple[str, str], Rule] = {
    ("", "GroupNormalization"): _group,
    ("", "InstanceNormalization"): _instance,
    ("", "LayerNormalization"): _layer,
    ("", "LpNormalization"): _lp,
    ("", "MeanVarianceNormalization"): _mean_variance,
    ("", "RMSNormalization"): _rms,
    ("", "SimplifiedLayerNormalization"): _rms,
    ("com.microsoft", "EmbedLayerNormalization"): _embed,
    ("com.microsoft", "LayerNormalization"): _layer,
    ("com.microsoft", "SimplifiedLayerNormalization"): _rms,
    ("com.microsoft", "SkipLayerNormalization"): _skip_layer,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): _skip_rms,
}
