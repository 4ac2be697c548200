"""The network of the attention model, written once for NumPy (prediction) and PyTorch (training).

    rows     -> piecewise linear encoding, two layers: an embedding of each distinct row
    attention   between a program's rows, with a residual, then residual layers
    program  -> sum over its rows, one layer, one number

The architecture is TLP's (Zhai et al., ASPLOS 2023, section 4) with two differences. Each number is
also encoded by its position within up to 16 intervals between quantiles of the training rows
(piecewise linear encoding; Gorishniy et al., NeurIPS 2022, section 3.2): the power of two of a
factor is more informative than its size. Distinct rows of a batch are embedded, and projected to
queries, keys and values, only once; this is possible without a positional encoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

NamedArrays = dict[str, Any]
Array = NDArray[np.float32]

#: Bound of the attention logits: beyond e^50 to one nothing changes.
_BOUND = 50.0

#: Arrays computed from the training rows and then fixed; all other weights are learned.
FIXED = ("mean", "scale", "column", "low", "width")


def intervals(rows: Array, bins: int) -> NamedArrays:
    """The encoding of these rows: `mean` and `scale` of each column; `column`, `low` and `width` of
    each interval. Zero, which often means "absent", is the end of an interval."""
    spans: list[tuple[int, float, float]] = []
    for column, values in enumerate(rows.T):
        there = values[values != 0]
        if len(there) == 0 or (len(there) == len(values) and there.min() == there.max()):
            continue
        shares = np.quantile(np.append(there, 0.0), np.linspace(0, 1, bins + 1))
        ends = np.unique(shares.round(4))
        spans += [(column, low, high - low) for low, high in pairwise(ends)]
    deviation = rows.std(axis=0)
    return {
        "mean": rows.mean(axis=0, dtype=np.float64).astype(np.float32),
        "scale": np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32),
        "column": np.array([column for column, _, _ in spans], np.int64),
        "low": np.array([low for _, low, _ in spans], np.float32),
        "width": np.array([width for _, _, width in spans], np.float32),
    }


def sizes(fixed: NamedArrays, hidden: int, layers: int) -> dict[str, tuple[int, int]]:
    """Numbers of inputs and outputs of each layer."""
    columns = len(fixed["mean"]) + len(fixed["column"])
    shapes = {"rows1": (columns, hidden), "rows2": (hidden, hidden)}
    for layer in range(layers):
        shapes[f"project{layer}"] = (hidden, 3 * hidden)
        for name in ("out", "first", "second"):
            shapes[f"{name}{layer}"] = (hidden, hidden)
    return shapes | {"program": (hidden, hidden), "score": (hidden, 1)}


def initial(
    fixed: NamedArrays, hidden: int, layers: int, generator: np.random.Generator
) -> NamedArrays:
    """Weights uniform in +-1/sqrt(inputs), the default of PyTorch's linear layers."""
    weights = dict(fixed)
    for name, (inputs, outputs) in sizes(fixed, hidden, layers).items():
        bound = 1.0 / math.sqrt(inputs)
        weights[f"w_{name}"] = generator.uniform(-bound, bound, (inputs, outputs)).astype(
            np.float32
        )
        weights[f"b_{name}"] = generator.uniform(-bound, bound, outputs).astype(np.float32)
    return weights


def are_weights(arrays: NamedArrays, hidden: int, layers: int) -> bool:
    """Whether these are the arrays of such a network. Raises KeyError if columns are missing."""
    columns = (len(arrays["mean"]),)
    intervals = (len(arrays["column"]),)
    shapes: dict[str, tuple[int, ...]] = {"mean": columns, "scale": columns}
    shapes |= {"column": intervals, "low": intervals, "width": intervals}
    for name, (inputs, outputs) in sizes(arrays, hidden, layers).items():
        shapes |= {f"w_{name}": (inputs, outputs), f"b_{name}": (outputs,)}
    kinds = {n: (shape, "int64" if n == "column" else "float32") for n, shape in shapes.items()}
    column = arrays["column"]
    return {n: (a.shape, a.dtype.name) for n, a in arrays.items()} == kinds and bool(
        ((column >= 0) & (column < columns[0])).all()
    )


def narrowed(weights: NamedArrays, rows: Array) -> tuple[NamedArrays, Array]:
    """The network and rows without columns and intervals that are constant over all rows; their
    contribution moves into the bias."""
    least, most = rows.min(axis=0), rows.max(axis=0)
    differs = least < most
    column, low, width = weights["column"], weights["low"], weights["width"]
    crossed = differs[column] & (least[column] < low + width) & (most[column] > low)
    kept = np.concatenate([differs, crossed])
    equal = _encoded(np, weights, rows[:1])[0, ~kept]
    layer = weights["w_rows1"]
    fewer = {
        "mean": weights["mean"][differs],
        "scale": weights["scale"][differs],
        "column": (np.cumsum(differs) - 1)[column[crossed]],
        "low": low[crossed],
        "width": width[crossed],
        "w_rows1": layer[kept],
        "b_rows1": weights["b_rows1"] + equal @ layer[~kept],
    }
    return weights | fewer, rows[:, differs]


def embed(xp: Any, weights: NamedArrays, rows: Any) -> Any:
    """Rows (rows, columns) embedded, with their queries, keys and values: (rows, 4 hidden)."""
    x = _relu(_dense(weights, "rows1", _encoded(xp, weights, rows)))
    x = _relu(_dense(weights, "rows2", x))
    return xp.concatenate([x, _dense(weights, "project0", x)], 1)


def forward(
    xp: Any,
    weights: NamedArrays,
    heads: int,
    embedded: Any,
    local: Any,
    inside: Any = None,
    dropout: Callable[[Any], Any] = lambda x: x,
) -> Any:
    """Scores (programs,) before the logistic function, in arrays of `xp`.

    `embedded` (rows, 4 hidden) are the distinct rows, `local` (programs, length) the row indices of
    each program, `inside` (programs, length) is 1.0 for rows and 0.0 for padding; None means 1.0
    everywhere.
    """
    hidden = embedded.shape[1] // 4
    whole = embedded[local]
    x, projected = whole[..., :hidden], whole[..., hidden:]
    for layer in range(sum(name.startswith("w_project") for name in weights)):
        if layer:
            projected = _dense(weights, f"project{layer}", x)
        seen = _attention(xp, heads, projected, inside)
        # In schema `tilings/1` the first row describes the whole program: add it to each row.
        x = x + dropout(_dense(weights, f"out{layer}", seen)) + x[:, :1]
        x = x + _relu(_dense(weights, f"first{layer}", x))
        x = x + _relu(_dense(weights, f"second{layer}", x))
    x = x.sum(1) if inside is None else (x * inside[..., None]).sum(1)
    x = dropout(_relu(_dense(weights, "program", x)))
    return _dense(weights, "score", x)[:, 0]


def attention(xp: Any, heads: int, embedded: Any) -> Any:
    """Attention weights of the first layer between a program's rows, given by `embed`: (heads,
    length, length), whose rows sum to 1."""
    hidden = embedded.shape[1] // 4
    weight, total, _ = _weighed(xp, heads, embedded[None, :, hidden:], None)
    return (weight / total)[0]


def _attention(xp: Any, heads: int, projected: Any, inside: Any) -> Any:
    """The attention output: (programs, length, hidden) from (programs, length, 3 hidden)."""
    weight, total, value = _weighed(xp, heads, projected, inside)
    seen = (weight @ value) / total
    return seen.swapaxes(1, 2).reshape(*projected.shape[:2], -1)


def _weighed(xp: Any, heads: int, projected: Any, inside: Any) -> tuple[Any, Any, Any]:
    """The unnormalised attention weights (programs, heads, length, length), their sums over the
    last axis, and the values (programs, heads, length, hidden / heads)."""
    programs, length, columns = projected.shape
    hidden = columns // 3
    query, key, value = (
        projected[..., start : start + hidden]
        .reshape(programs, length, heads, hidden // heads)
        .swapaxes(1, 2)
        for start in (0, hidden, 2 * hidden)
    )
    weight = query @ key.swapaxes(2, 3)
    weight *= (heads / hidden) ** 0.5
    # Bounded logits need no maximum per row, which is slow in NumPy.
    weight = xp.exp(weight.clip(-_BOUND, _BOUND))
    if inside is not None:
        weight = weight * inside[:, None, None, :]
    # One product for all row sums: np.sum is ten times slower on rows this short.
    total = weight.reshape(-1, length) @ xp.ones_like(weight[0, 0, 0])
    return weight, total.reshape(programs, heads, length, 1), value


def _encoded(xp: Any, weights: NamedArrays, rows: Any) -> Any:
    plain = (rows - weights["mean"]) / weights["scale"]
    place = ((rows[:, weights["column"]] - weights["low"]) / weights["width"]).clip(0, 1)
    return xp.concatenate([plain, place], 1)


def _dense(weights: NamedArrays, name: str, x: Any) -> Any:
    # One 2D product: with three dimensions NumPy runs one product per program, which is three times
    # slower.
    layer = weights[f"w_{name}"]
    outputs = x.reshape(math.prod(x.shape[:-1]), len(layer)) @ layer
    # In place: a third less memory traffic.
    outputs += weights[f"b_{name}"]
    return outputs.reshape(*x.shape[:-1], layer.shape[1])


def _relu(x: Any) -> Any:
    # With a single bound NumPy takes three times as long.
    return x.clip(0, math.inf)
