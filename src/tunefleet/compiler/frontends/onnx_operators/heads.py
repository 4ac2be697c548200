"""Scaled dot-product attention over heads: what all attention operators share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    constant,
    constant_value,
    dtype_of,
    relax,
    shape_of,
)

op = relax.op


@dataclass(frozen=True, slots=True)
class HeadScores:
    """How scores become weights.

    `bias` is added to them, `allowed` is boolean; both broadcast to (batch, heads, queries, keys).
    A query without any allowed key gets zeros; where the `bias_hides`, a key whose bias is the
    lowest number or less does not count as allowed.
    """

    scale: float | None = None
    softcap: float = 0.0
    bias: Any = None
    allowed: Any = None
    bias_hides: bool = False
    in_float32: bool = False


@dataclass(frozen=True, slots=True)
class Attended:
    """The output, (batch, heads, queries, size), and the stages of the scores."""

    output: Any
    raw: Any
    capped: Any
    biased: Any
    weights: Any


def split_heads(node: Node, x: Any, heads: int) -> Any:
    """(batch, tokens, heads * size) -> (batch, heads, tokens, size)."""
    batch, tokens, width = shape_of(x)
    parts = op.reshape(x, (batch, tokens, heads, width // heads))
    return node.emit(op.permute_dims(parts, [0, 2, 1, 3]))


def join_heads(node: Node, x: Any) -> Any:
    """(batch, heads, tokens, size) -> (batch, tokens, heads * size)."""
    batch, heads, tokens, size = shape_of(x)
    rows = op.permute_dims(x, [0, 2, 1, 3])
    return node.emit(op.reshape(rows, (batch, tokens, heads * size)))


def causal(queries: int, keys: int, offset: int) -> NDArray[Any]:
    """Which keys each query sees, (queries, keys), where `offset` keys come before the first."""
    return np.arange(keys) <= np.arange(queries)[:, None] + offset


def both(first: Any, second: Any) -> Any:
    """What two masks allow; None allows all."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first & second
    one, other = (constant(m, "bool") if isinstance(m, np.ndarray) else m for m in (first, second))
    return op.logical_and(one, other)


def attend(node: Node, query: Any, key: Any, value: Any, form: HeadScores) -> Attended:
    """Attention of (batch, heads, tokens, size) tensors; keys may have fewer heads than queries."""
    batch, heads, queries, size = shape_of(query)
    _, groups, keys, width = shape_of(value)
    dtype = dtype_of(query)
    scale = 1.0 / math.sqrt(size) if form.scale is None else form.scale
    scaled = node.emit(query * constant(scale, dtype))
    if heads != groups:
        # Queries of the heads that share a key are rows of one product.
        rows = heads // groups * queries
        scaled = node.emit(op.reshape(scaled, (batch, groups, rows, size)))
    scores = node.emit(op.matmul(scaled, op.permute_dims(key, [0, 1, 3, 2])))
    if heads != groups:
        scores = node.emit(op.reshape(scores, (batch, heads, queries, keys)))
    raw = scores
    if form.softcap:
        cap = constant(form.softcap, dtype)
        scores = node.emit(op.tanh(scores / cap) * cap)
    capped = scores
    if form.bias is not None:
        scores = node.emit(scores + form.bias)
    scores = biased = _masked(node, scores, form.allowed, dtype)
    seen = _seen(node, form, dtype)
    if form.in_float32 and dtype != "float32":
        scores = op.astype(scores, "float32")
    weights = op.nn.softmax(scores, -1)
    if form.in_float32 and dtype != "float32":
        weights = op.astype(weights, dtype)
    if seen is not None:
        weights = op.where(seen, weights, constant(0.0, dtype))
    weights = node.emit(weights)
    parts = weights
    if heads != groups:
        rows = heads // groups * queries
        parts = node.emit(op.reshape(weights, (batch, groups, rows, keys)))
    output = node.emit(op.matmul(parts, value))
    if heads != groups:
        output = node.emit(op.reshape(output, (batch, heads, queries, width)))
    return Attended(output, raw, capped, biased, weights)


def _masked(node: Node, scores: Any, allowed: Any, dtype: str) -> Any:
    """The scores with what is not allowed at the lowest number."""
    if allowed is None:
        return scores
    allowed = constant(allowed, "bool") if isinstance(allowed, np.ndarray) else allowed
    return node.emit(op.where(allowed, scores, constant(np.finfo(dtype).min, dtype)))


def _seen(node: Node, form: HeadScores, dtype: str) -> Any:
    """Which queries see a key; None where all do."""
    allowed = form.allowed
    if form.bias_hides and form.bias is not None:
        value, lowest = constant_value(form.bias), np.finfo(dtype).min
        if value is None:
            shown = node.emit(op.greater(form.bias, constant(lowest, dtype)))
        else:
            shown = value > lowest
        allowed = both(allowed, shown)
    if allowed is None:
        return None
    value = allowed if isinstance(allowed, np.ndarray) else constant_value(allowed)
    if value is None:
        some = op.max(op.astype(node.emit(allowed), "int8"), -1, True)
        return node.emit(some > constant(0, "int8"))
    rows = value.any(-1, keepdims=True)
    return None if rows.all() else constant(rows, "bool")


def joined_past(node: Node, past: Any, now: Any) -> Any:
    """Keys or values, (batch, heads, tokens, size), after those of a cache."""
    if past is None or 0 in shape_of(past):
        return now
    return node.emit(op.concat([past, now], 2))


def rotated(node: Node, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rotary embedding of (batch, heads, tokens, size).

    `cos` and `sin` broadcast to (batch, heads, tokens, half); what lies beyond the 2 * half first
    elements stays as it is.
    """
    *lead, size = shape_of(x)
    half = shape_of(cos)[-1]

    def part(start: int, end: int, stride: int = 1) -> Any:
        return op.strided_slice(x, [3], [start], [end], [stride])

    if interleaved:
        first, second = part(0, 2 * half, 2), part(1, 2 * half, 2)
    else:
        first, second = part(0, half), part(half, 2 * half)
    first, second = node.emit(first), node.emit(second)
    turned = [node.emit(first * cos - second * sin), node.emit(first * sin + second * cos)]
    if interleaved:
        turned = [op.expand_dims(t, -1) for t in turned]
        turned = [node.emit(op.reshape(op.concat(turned, -1), (*lead, 2 * half)))]
    if 2 * half < size:
        turned.append(part(2 * half, size))
    return node.emit(op.concat(turned, -1)) if len(turned) > 1 else turned[0]
