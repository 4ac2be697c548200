"""Moves outliers of activations into the weights before both are rounded (SmoothQuant).

In networks with attention a few channels of an activation are ten times larger than the rest, so
with one scale few of the 8 bits remain for the rest. A product x W equals (x / s) (s W) for any
s > 0 per summed channel, and weights have separate scales per column. Therefore channels are
divided by factors that equalise them.
Source: Xiao et al., SmoothQuant, ICML 2023. The strength is chosen per activation, by the loss of
its products on samples; if the gain is small, nothing is moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tunefleet.compiler.quantize.calibration import SampleInputs
from tunefleet.compiler.quantize.losses import watched

Floats = NDArray[np.float32]

#: Exponents: the share of the differences between channels that moves into the weights.
_STRENGTHS = (0.25, 0.5, 0.75)
#: The squared error of the products must fall to this share, since smoothing costs a
#: multiplication.
_WORTH = 0.7
#: The number of rows of an activation, over all samples, for comparing products.
_ROWS = 512
#: Prefix of names that ONNX Runtime's fusion of products and sums adds.
_MADE = ("gemm_input_shape", "gemm_output_shape")


@dataclass(slots=True)
class _Seen:
    """An activation (..., channels) over all samples: its range per channel, and some rows."""

    low: Floats
    high: Floats
    rows: list[Floats] = field(default_factory=list)

    def add(self, values: Floats, rows: int) -> None:
        table = values.reshape(-1, values.shape[-1])
        self.low = np.minimum(self.low, table.min(axis=0))
        self.high = np.maximum(self.high, table.max(axis=0))
        self.rows.append(table[:: -(-len(table) // rows)])


def smooth(source: Path, target: Path, samples: Sequence[SampleInputs], apart: bool) -> None:
    """Writes the network `source` to `target` with outliers of the inputs of products moved into
    the weights; `apart`: with external weights, as in `source`.

    The result is equal up to float32 rounding. Both files are in one folder.
    """
    model = onnx.load(source)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    products = _by_activation(model.graph.node, weights)
    for name, seen in _seen(source, list(products), samples).items():
        tables = [_table(node, weights) for node in products[name]]
        scales = _scales(seen, np.concatenate(tables, axis=1))
        if scales is not None:
            _move(model.graph, name, products[name], tables, scales)
    _tidy(model.graph)
    onnx.save(model, target, save_as_external_data=apart, location=f"{target.name}.data")


def _tidy(graph: onnx.GraphProto) -> None:
    """Removes unused weights and renames shapes that ONNX Runtime added: it fails when it optimises
    a network again in which its generated names exist."""
    used = {name for node in graph.node for name in node.input}
    for tensor in [t for t in graph.initializer if t.name not in used]:
        graph.initializer.remove(tensor)
    named = {t.name: f"{t.name}/made" for t in graph.initializer if t.name.startswith(_MADE)}
    for tensor in graph.initializer:
        tensor.name = named.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [named.get(name, name) for name in node.input]


def _by_activation(
    nodes: Sequence[onnx.NodeProto], weights: Mapping[str, onnx.TensorProto]
) -> dict[str, list[onnx.NodeProto]]:
    """The products of an activation with a weight matrix, by activation."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        if node.op_type not in ("Gemm", "MatMul") or _flag(node, "transA"):
            continue
        activation, weight = node.input[0], weights.get(node.input[1])
        if weight is None or activation in weights or len(weight.dims) != 2:
            continue
        if weight.data_type == onnx.TensorProto.FLOAT:
            found.setdefault(activation, []).append(node)
    return found


def _flag(node: onnx.NodeProto, name: str) -> bool:
    return any(attribute.name == name and attribute.i for attribute in node.attribute)


def _table(node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]) -> Floats:
    """The weights as (summed channels, columns)."""
    return _turned(node, np.asarray(numpy_helper.to_array(weights[node.input[1]]), np.float32))


def _turned(node: onnx.NodeProto, table: Floats) -> Floats:
    """Transposes between the stored and the multiplied form of weights."""
    return table.T if _flag(node, "transB") else table


def _seen(source: Path, names: Sequence[str], samples: Sequence[SampleInputs]) -> dict[str, _Seen]:
    """Collects activations over all samples."""
    found: dict[str, _Seen] = {}
    for values in watched(source, names, samples) if names else ():
        for name, value in values.items():
            edge = np.full(value.shape[-1], np.inf, np.float32)
            found.setdefault(name, _Seen(edge, -edge)).add(value, -(-_ROWS // len(samples)))
    return found


def _scales(seen: _Seen, table: Floats) -> Floats | None:
    """The divisors of channels before products with `table`; None if the gain is too small."""
    activation = np.maximum(np.abs(seen.low), np.abs(seen.high))
    weight = np.abs(table).max(axis=1)
    both = (activation > 0) & (weight > 0)
    rows = np.concatenate(seen.rows)
    exact = rows @ table

    def error(scales: Floats) -> float:
        least, most = min(0.0, (seen.low / scales).min()), max(0.0, (seen.high / scales).max())
        found = _rounded(rows / scales, least, most) @ _rounded_columns(table * scales[:, None])
        return float(np.mean((found - exact) ** 2))

    plain = error(np.ones_like(activation))
    best, least = None, _WORTH * plain
    for strength in _STRENGTHS:
        scales = np.ones_like(activation)
        scales[both] = activation[both] ** strength / weight[both] ** (1 - strength)
        lost = error(scales)
        if lost < least:
            best, least = scales, lost
    return best


def _rounded(values: Floats, low: float, high: float) -> Floats:
    """Rounded to uint8 with one scale."""
    step = np.float32((high - low) / 255) or np.float32(1)
    zero = np.rint(-low / step)
    return np.asarray(((np.rint(values / step) + zero).clip(0, 255) - zero) * step, np.float32)


def _rounded_columns(table: Floats) -> Floats:
    """Rounded to int8 with a scale per column."""
    step = np.abs(table).max(axis=0) / 127
    step[step == 0] = 1
    return np.asarray(np.rint(table / step) * step, np.float32)


def _move(
    graph: onnx.GraphProto,
    name: str,
    products: Sequence[onnx.NodeProto],
    tables: Sequence[Floats],
    scales: Floats,
) -> None:
    smoothed, by = f"{name}/smoothed", f"{name}/smoothed by"
    graph.initializer.append(numpy_helper.from_array(1 / scales, by))
    for node, table in zip(products, tables, strict=True):
        moved = np.ascontiguousarray(_turned(node, table * scales[:, None]))
        own = f"{node.output[0]}/weight"
        graph.initializer.append(numpy_helper.from_array(moved, own))
        node.input[0], node.input[1] = smoothed, own
    place = next(place for place, node in enumerate(graph.node) if node == products[0])
    node = onnx.helper.make_node("Mul", [name, by], [smoothed], f"{name}/smoothing")
    graph.node.insert(place, node)
