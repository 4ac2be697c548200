"""Attention operators of ONNX Runtime (com.microsoft)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tunefleet.compiler.frontends.onnx_operators.attention import caches
from tunefleet.compiler.frontends.onnx_operators.heads import (
    HeadScores,
    attend,
    causal,
    join_heads,
    joined_past,
    rotated,
    split_heads,
)
from tunefleet.compiler.frontends.onnx_operators.integers import by_columns, centered, scaled
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    dtype_of,
    relax,
    shape_of,
)

op = relax.op

_FILTER = -10000.0


def _attention(node: Node) -> list[Any]:
    """Self-attention with the weights of its projections; past and present are stacked."""
    projected = op.matmul(node.inputs[0], node.inputs[1])
    if node.has(2):
        projected = projected + node.inputs[2]
    return _attended(node, node.emit(projected))


def _quantized_attention(node: Node) -> list[Any]:
    """As `_attention`, of 8-bit integers: data, weights, bias, their scales, a mask, their zero
    points, and the past."""
    sums = op.matmul(
        centered(node, node.inputs[0], node.input(6)),
        centered(node, node.inputs[1], node.input(7), -1),
    )
    scale = node.emit(op.multiply(*(by_columns(node, node.inputs[i]) for i in (3, 4))))
    projected = scaled(node, sums, scale, node.input(2))
    inputs = (None, None, None, node.input(5), node.input(8))
    return _attended(replace(node, inputs=inputs), projected)


def _attended(node: Node, projected: Any) -> list[Any]:
    """What heads make of the projections; the mask, the past and the bias are inputs 3 to 5."""
    attrs, heads = node.attrs, int(node.attrs["num_heads"])
    if attrs.get("do_rotary", 0) or attrs.get("past_present_share_buffer", 0) or node.has(6):
        raise NotImplementedError("Attention with rotary embeddings or a shared cache")
    width = shape_of(projected)[-1]
    sizes = attrs.get("qkv_hidden_sizes") or [width // 3] * 3
    query, key, value = (split_heads(node, x, heads) for x in _parted(node, projected, sizes))
    before = 0
    if node.has(4):
        before = node.shape(4)[3]
        past = [op.squeeze(_slice(node.inputs[4], 0, i, i + 1), [0]) for i in range(2)]
        key, value = (
            joined_past(node, node.emit(p), x) for p, x in zip(past, (key, value), strict=True)
        )
    bias = _biases(node, 3, 5, query, key, before)
    form = HeadScores(scale=attrs.get("scale") or None, bias=bias)
    output = join_heads(node, attend(node, query, key, value, form).output)
    present = None
    if node.wants(1):
        present = op.concat([op.expand_dims(key, 0), op.expand_dims(value, 0)], 0)
    return [output, present]


def _multi_head(node: Node) -> list[Any]:
    """Attention of projected inputs, packed or not; past and present are apart."""
    attrs, heads = node.attrs, int(node.attrs["num_heads"])
    if node.has(8) or node.has(9) or node.has(10):
        raise NotImplementedError("MultiHeadAttention with a shared cache")
    parts = _unpacked(node)
    if node.has(3):
        widths = [p[2] if len(p) == 3 else p[1] * p[3] for p in map(shape_of, parts)]
        shifts = _parted(node, node.inputs[3], widths)
        if len(shape_of(parts[1])) == 4 and (node.constant(3)[widths[0] :] != 0).any():  # type: ignore[index]
            raise NotImplementedError("MultiHeadAttention with a bias of keys already in heads")
        parts = [
            node.emit(part + shift) if len(shape_of(part)) == 3 else part
            for part, shift in zip(parts, shifts, strict=True)
        ]
    query, key, value = (
        split_heads(node, part, heads) if len(shape_of(part)) == 3 else part for part in parts
    )
    before = node.shape(6)[2] if node.has(6) else 0
    key, value = (joined_past(node, node.input(6 + i), x) for i, x in enumerate((key, value)))
    bias = _biases(node, 4, 5, query, key, before)
    form = HeadScores(scale=attrs.get("scale") or None, bias=bias)
    return [join_heads(node, attend(node, query, key, value, form).output), key, value]


def _unpacked(node: Node) -> list[Any]:
    """Query, key and value; each (batch, tokens, width), or keys and values by heads."""
    query, key, value = node.inputs[0], node.input(1), node.input(2)
    if len(node.shape(0)) == 5:
        return _unstacked(node, query)
    if key is None:
        raise NotImplementedError("MultiHeadAttention without keys")
    if len(shape_of(key)) == 5:
        return [query, *_unstacked(node, key)]
    return [query, key, value]


def _unstacked(node: Node, packed: Any) -> list[Any]:
    """(batch, tokens, heads, parts, size) -> parts of (batch, tokens, heads * size)."""
    batch, tokens, heads, parts, size = shape_of(packed)
    shape = (batch, tokens, heads * size)
    return [
        node.emit(op.reshape(node.emit(_slice(packed, 3, i, i + 1)), shape)) for i in range(parts)
    ]


def _biases(node: Node, mask: int, added: int, query: Any, key: Any, before: int) -> Any:
    """What is added to the scores: the node's bias, its mask and what its direction hides."""
    queries, keys = shape_of(query)[2], shape_of(key)[2]
    dtype, hidden = dtype_of(query), float(node.attrs.get("mask_filter_value", _FILTER))
    terms = [node.inputs[added]] if node.has(added) else []
    if node.has(mask):
        seen = op.astype(_mask(node, mask, shape_of(query)[0], keys), dtype)
        terms.append((constant(1.0, dtype) - seen) * constant(hidden, dtype))
    if node.attrs.get("unidirectional", 0):
        # Lower than what the mask hides: among hidden keys only those are seen that come before.
        unseen = ~causal(queries, keys, before)
        terms.append(constant(np.where(unseen, np.finfo(dtype).min, 0.0), dtype))
    if not terms:
        return None
    total = node.emit(terms[0])
    for term in terms[1:]:
        total = node.emit(total + term)
    return total


def _mask(node: Node, index: int, batch: int, keys: int) -> Any:
    """Which keys are there, broadcast to (batch, heads, queries, keys)."""
    mask, extents = node.inputs[index], node.shape(index)
    if extents == (batch, keys):
        return node.emit(op.reshape(mask, (batch, 1, 1, keys)))
    if len(extents) == 3 and extents[-1] == keys:
        return node.emit(op.expand_dims(mask, 1))
    if extents == (batch,) and batch != keys:
        lengths = node.emit(op.reshape(mask, (batch, 1, 1, 1)))
        return node.emit(op.less(constant(np.arange(keys), node.dtype(index)), lengths))
    raise NotImplementedError(f"{node.operator} with a mask of the shape {extents}")


def _grouped(node: Node) -> list[Any]:
    """Causal attention of a prompt; a cache that is filled in place is not converted."""
    attrs = node.attrs
    heads, groups = int(attrs["num_heads"]), int(attrs["kv_num_heads"])
    _, tokens, width = node.shape(0)
    lengths = node.constant(5)
    has_past = node.has(3) and 0 not in node.shape(3)
    if has_past or lengths is None or (lengths != tokens - 1).any():
        raise NotImplementedError("GroupQueryAttention with a cache or with padding")
    if any(node.has(i) for i in range(9, len(node.inputs))) or attrs.get("smooth_softmax", 0):
        raise NotImplementedError("GroupQueryAttention with positions, a bias or sinks")
    if attrs.get("qk_output", 0) or attrs.get("kv_cache_bit_width", 0):
        raise NotImplementedError("GroupQueryAttention that gives out scores or packs its cache")
    if node.has(1):
        parts = list(node.inputs[:3])
    else:
        size = width // (heads + 2 * groups)
        parts = _parted(node, node.inputs[0], [heads * size, groups * size, groups * size])
    query, key, value = (
        split_heads(node, part, n) for part, n in zip(parts, (heads, groups, groups), strict=True)
    )
    if attrs.get("do_rotary", 0):
        cos, sin = [
            caches(node, node.emit(op.expand_dims(_slice(node.inputs[i], 0, 0, tokens), 0)), None)
            for i in (7, 8)
        ]
        interleaved = bool(attrs.get("rotary_interleaved", 0))
        query, key = (rotated(node, x, cos, sin, interleaved) for x in (query, key))
    allowed = causal(tokens, tokens, 0)
    window = attrs.get("local_window_size", -1)
    if window > 0:
        allowed = allowed & ~causal(tokens, tokens, -window)
    form = HeadScores(
        scale=attrs.get("scale") or None, softcap=float(attrs.get("softcap", 0)), allowed=allowed
    )
    return [join_heads(node, attend(node, query, key, value, form).output), key, value]


def _rotary(node: Node) -> Any:
    x, positions, cos, sin = node.inputs[:4]
    attrs = node.attrs
    if attrs.get("is_packed_batching", 0) or attrs.get("scale", 1.0) != 1.0:
        raise NotImplementedError("RotaryEmbedding of packed batches or with a scale")
    flat = len(node.shape(0)) == 3
    if flat:
        batch, tokens, width = node.shape(0)
        heads = attrs.get("num_heads", 0) or width // (2 * node.shape(2)[1])
        x = split_heads(node, x, heads)
    else:
        batch, _, tokens, _ = node.shape(0)
    if node.shape(1) == (1,) and (batch, tokens) != (1, 1):
        steps = constant(np.arange(tokens)[None], node.dtype(1))
        positions = node.emit(positions + steps)
    positions = node.emit(op.reshape(positions, (-1 if node.shape(1) != (1,) else 1, tokens)))
    cos, sin = [caches(node, table, positions) for table in (cos, sin)]
    x = rotated(node, x, cos, sin, bool(attrs.get("interleaved", 0)))
    return join_heads(node, x) if flat else x


def _parted(node: Node, x: Any, sizes: list[int]) -> list[Any]:
    """`x` cut along its last axis."""
    axis, ends = len(shape_of(x)) - 1, np.cumsum(sizes).tolist()
    return [
        node.emit(_slice(x, axis, end - size, end)) for size, end in zip(sizes, ends, strict=True)
    ]


def _slice(x: Any, axis: int, start: int, end: int) -> Any:
    return op.strided_slice(x, [axis], [start], [end])


RULES: dict[tuple[str, str], Rule] = {
    ("com.microsoft", "Attention"): _attention,
    ("com.microsoft", "GroupQueryAttention"): _grouped,
    ("com.microsoft", "MultiHeadAttention"): _multi_head,
    ("com.microsoft", "QAttention"): _quantized_attention,
    ("com.microsoft", "RotaryEmbedding"): _rotary,
}
