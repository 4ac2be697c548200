"""The network of the attention model, written once for NumPy (prediction) and PyTorch (training).

    rows     -> numbers split into intervals, two layers: an embedding of each distinct row
    attention   of a program's rows to each other, with a residual, then residual layers
    program  -> sum over its rows, one layer, one number

TLP's shape (Zhai et al., ASPLOS 2023, section 4) with two differences. Each number enters a second
time as its place within up to 16 intervals between the quantiles of the training rows (piecewise
linear encoding; Gorishniy et al., NeurIPS 2022, section 3.2): which power of two a factor is tells
more than its size. And rows are embedded, and projected to queries, keys and values, once for each
distinct one of a batch, which there is no positional encoding to prevent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = dict[str, Any]
Array = NDArray[np.float32]

#: What is worked out of the training rows and stays; all other weights are learnt.
FIXED = ("mean", "scale", "column", "low", "width")


def intervals(rows: Array, bins: int) -> Weights:
    """How numbers of these rows are encoded: `mean` and `scale` of each column; `column`, `low` and
    `width` of each interval. Zero, which often means that there is nothing, is an end of one."""
    found: list[tuple[int, float, float]] = []
    for column, values in enumerate(rows.T):
        there = values[values != 0]
        if len(there) == 0 or (len(there) == len(values) and there.min() == there.max()):
            continue
        shares = np.quantile(np.append(there, 0.0), np.linspace(0, 1, bins + 1))
        ends = np.unique(shares.round(4))
        found += [(column, low, high - low) for low, high in pairwise(ends)]
    deviation = rows.std(axis=0)
    return {
        "mean": rows.mean(axis=0, dtype=np.float64).astype(np.float32),
        "scale": np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32),
        "column": np.array([column for column, _, _ in found], np.int64),
        "low": np.array([low for _, low, _ in found], np.float32),
        "width": np.array([width for _, _, width in found], np.float32),
    }


def initial(fixed: Weights, hidden: int, layers: int, generator: np.random.Generator) -> Weights:
    """Weights uniform in +-1/sqrt(inputs), as PyTorch's linear layers start."""
    columns = len(fixed["mean"]) + len(fixed["column"])
    sizes = {"rows1": (columns, hidden), "rows2": (hidden, hidden)}
    for layer in range(layers):
        sizes[f"project{layer}"] = (hidden, 3 * hidden)
        for name in ("out", "first", "second"):
            sizes[f"{name}{layer}"] = (hidden, hidden)
    sizes |= {"program": (hidden, hidden), "score": (hidden, 1)}
    found = dict(fixed)
    for name, (inputs, outputs) in sizes.items():
        bound = 1.0 / math.sqrt(inputs)
        found[f"w_{name}"] = generator.uniform(-bound, bound, (inputs, outputs)).astype(np.float32)
        found[f"b_{name}"] = generator.uniform(-bound, bound, outputs).astype(np.float32)
    return found


def forward(
    xp: Any,
    weights: Weights,
    heads: int,
    distinct: Any,
    local: Any,
    inside: Any,
    dropout: Callable[[Any], Any] = lambda x: x,
) -> Any:
    """Scores (programs,) before the logistic function, in arrays of `xp`.

    `distinct` (rows, columns) are the rows there are, `local` (programs, length) which of them a
    program has, `inside` (programs, length) is 1.0 where it has one and 0.0 beyond its end.
    """
    x = _encoded(xp, weights, distinct)
    x = _dense(weights, "rows1", x).clip(0)
    x = _dense(weights, "rows2", x).clip(0)
    hidden = x.shape[-1]
    away = (inside[:, None, None, :] - 1.0) * 1e4
    for layer in range(sum(name.startswith("w_project") for name in weights)):
        projected = _dense(weights, f"project{layer}", x)
        if layer == 0:
            x, projected = x[local], projected[local]
        shape = (*local.shape, heads, hidden // heads)
        query, key, value = (
            projected[..., start : start + hidden].reshape(shape).swapaxes(1, 2)
            for start in (0, hidden, 2 * hidden)
        )
        weight = _softmax(xp, query @ key.swapaxes(2, 3) * (heads / hidden) ** 0.5 + away)
        seen = (weight @ value).swapaxes(1, 2).reshape(*local.shape, hidden)
        # Of schema `tilings/1` the first row is the whole program: each learns what it is part of.
        x = x + dropout(_dense(weights, f"out{layer}", seen)) + x[:, :1]
        x = x + _dense(weights, f"first{layer}", x).clip(0)
        x = x + _dense(weights, f"second{layer}", x).clip(0)
    whole = (x * inside[..., None]).sum(1)
    whole = dropout(_dense(weights, "program", whole).clip(0))
    return _dense(weights, "score", whole)[:, 0]


def _encoded(xp: Any, weights: Weights, rows: Any) -> Any:
    plain = (rows - weights["mean"]) / weights["scale"]
    place = ((rows[:, weights["column"]] - weights["low"]) / weights["width"]).clip(0, 1)
    return xp.concatenate([plain, place], 1)


def _dense(weights: Weights, name: str, x: Any) -> Any:
    return x @ weights[f"w_{name}"] + weights[f"b_{name}"]


def _softmax(xp: Any, x: Any) -> Any:
    x = xp.exp(x - xp.amax(x, -1, keepdims=True))
    return x / x.sum(-1, keepdims=True)
