"""Attention and rotary embeddings of the ONNX standard (opset 23 and later)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunefleet.compiler.frontends.onnx_operators.heads import (
    HeadScores,
    attend,
    both,
    causal,
    join_heads,
    joined_past,
    rotated,
    split_heads,
)
from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant, relax, shape_of

op = relax.op

_FLOAT, _FLOAT16 = 1, 10


def _attention(node: Node) -> list[Any]:
    """Y, present key and value, and the stage of the scores that the node asks for."""
    attrs = node.attrs
    if node.has(6):
        raise NotImplementedError("Attention with lengths of its keys")
    flat = len(node.shape(0)) == 3
    query, key, value = node.inputs[:3]
    if flat:
        query = split_heads(node, query, attrs["q_num_heads"])
        key = split_heads(node, key, attrs["kv_num_heads"])
        value = split_heads(node, value, attrs["kv_num_heads"])
    past = shape_of(node.input(4))[2] if node.has(4) else 0
    key = joined_past(node, node.input(4), key)
    value = joined_past(node, node.input(5), value)
    queries, keys = shape_of(query)[2], shape_of(key)[2]
    bias, allowed = _mask(node, keys)
    allowed = both(allowed, _window(node, queries, keys, past))
    precision = attrs.get("softmax_precision", 0)
    if precision not in (0, _FLOAT, _FLOAT16):
        raise NotImplementedError(f"Attention with softmax_precision {precision}")
    form = HeadScores(
        scale=attrs.get("scale"),
        softcap=float(attrs.get("softcap", 0.0)),
        bias=bias,
        allowed=allowed,
        bias_hides=True,
        in_float32=precision == _FLOAT,
    )
    attended = attend(node, query, key, value, form)
    output = join_heads(node, attended.output) if flat else attended.output
    return [output, key, value, _stage(node, attended, form) if node.wants(3) else None]


def _stage(node: Node, attended: Any, form: HeadScores) -> Any:
    mode = node.attrs.get("qk_matmul_output_mode", 0)
    if mode == 2 and form.allowed is not None:
        raise NotImplementedError("Attention that gives out scores of keys that it may not see")
    if mode in (1, 2) and node.opset < 24 and form.softcap:
        raise NotImplementedError("Attention whose modes of output changed with the opset")
    return (attended.raw, attended.capped, attended.biased, attended.weights)[mode]


def _mask(node: Node, keys: int) -> tuple[Any, Any]:
    """The mask as (what is added, what is allowed); keys beyond its end are not allowed."""
    if not node.has(3):
        return None, None
    mask, boolean = node.inputs[3], node.dtype(3) == "bool"
    extents = node.shape(3)
    missing = keys - extents[-1] if extents[-1] != 1 or keys == 1 else 0
    if missing:
        filler = np.zeros((*extents[:-1], missing))
        mask = node.emit(op.concat([mask, constant(filler, node.dtype(3))], -1))
    if boolean:
        return None, mask
    return mask, np.arange(keys)[None] < extents[-1] if missing else None


def _window(node: Node, queries: int, keys: int, past: int) -> Any:
    """The keys that a query may see by its position, None if all."""
    allowed = None
    if node.attrs.get("is_causal", 0):
        allowed = causal(queries, keys, past)
    left = node.attrs.get("left_window_size", -1)
    right = node.attrs.get("right_window_size", -1)
    if right >= 0:
        allowed = both(allowed, causal(queries, keys, past + right))
    if left >= 0:
        allowed = both(allowed, ~causal(queries, keys, past - left - 1))
    return allowed


def _rotary(node: Node) -> Any:
    x, cos, sin = node.inputs[:3]
    flat = len(node.shape(0)) == 3
    if flat:
        heads = node.attrs.get("num_heads", 0)
        if not heads:
            raise NotImplementedError("RotaryEmbedding of three dimensions without num_heads")
        x = split_heads(node, x, heads)
    cos, sin = [caches(node, table, node.input(3)) for table in (cos, sin)]
    x = rotated(node, x, cos, sin, bool(node.attrs.get("interleaved", 0)))
    return join_heads(node, x) if flat else x


def caches(node: Node, table: Any, positions: Any) -> Any:
    """A table of cosines by position -> (batch, 1, tokens, half)."""
    if positions is not None:
        batch, tokens = shape_of(positions)
        half = shape_of(table)[-1]
        rows = op.take(table, op.reshape(positions, (batch * tokens,)), 0, mode="clip")
        table = node.emit(op.reshape(rows, (batch, tokens, half)))
    return node.emit(op.expand_dims(table, 1))


RULES: dict[tuple[str, str], Rule] = {
    ("", "Attention"): _attention,
    ("", "RotaryEmbedding"): _rotary,
}
