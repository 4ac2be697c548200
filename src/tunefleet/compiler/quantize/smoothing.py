"""Outliers of activations moved into the weights that they meet, before both are rounded.

In networks with attention a few channels of an activation are ten times as large as the rest, to
which one scale for all of them leaves next to nothing of 8 bits. A product x W is (x / s) (s W) for
any s > 0 by channel of what is summed, and weights have scales of their own by column. So channels
are divided by what brings them nearer to each other.
Source: Xiao et al., SmoothQuant, ICML 2023. How far to go is chosen here for each activation, by
what its products lose on samples, and nothing is moved where little is gained.
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

#: How much of the differences between channels goes into the weights, by exponent.
_STRENGTHS = (0.25, 0.5, 0.75)
#: To this share the squared error of the products has to fall: what is moved costs a
#: multiplication.
_WORTH = 0.7
#: Rows of an activation, of all samples together, on which products are compared.
_ROWS = 512
#: So ONNX Runtime's fusion of products and sums names what it adds.
_MADE = ("gemm_input_shape", "gemm_output_shape")


@dataclass(slots=True)
class _Seen:
    """An activation (..., channels) over all samples: its range by channel, and some rows."""

    low: Floats
    high: Floats
    rows: list[Floats] = field(default_factory=list)

    def add(self, values: Floats, rows: int) -> None:
        table = values.reshape(-1, values.shape[-1])
        self.low = np.minimum(self.low, table.min(axis=0))
        self.high = np.maximum(self.high, table.max(axis=0))
        self.rows.append(table[:: -(-len(table) // rows)])


def smooth(source: Path, target: Path, samples: Sequence[SampleInputs], apart: bool) -> None:
    """Writes the network of `source`, with the outliers of what its products with weights read
    moved into these weights; `apart`: with its weights beside it, as it has them.

    It computes the same, but for how float32 rounds. Both files are in one folder.
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
    """Without weights that nothing reads. Shapes that ONNX Runtime put in get other names: it ends
    in an error where it optimises a network again and finds the names that it would give."""
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
    """The products of an activation and a table of weights, by the activation."""
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
    """(channels that are summed, columns)."""
    return _turned(node, np.asarray(numpy_helper.to_array(weights[node.input[1]]), np.float32))


def _turned(node: onnx.NodeProto, table: Floats) -> Floats:
    """From how a product stores its weights to how it multiplies them, or back."""
    return table.T if _flag(node, "transB") else table


def _seen(source: Path, names: Sequence[str], samples: Sequence[SampleInputs]) -> dict[str, _Seen]:
    """What activations are in all samples."""
    found: dict[str, _Seen] = {}
    for values in watched(source, names, samples) if names else ():
        for name, value in values.items():
            edge = np.full(value.shape[-1], np.inf, np.float32)
            found.setdefault(name, _Seen(edge, -edge)).add(value, -(-_ROWS // len(samples)))
    return found


def _scales(seen: _Seen, table: Floats) -> Floats | None:
    """By what to divide channels before products with `table`; None for nothing worth it."""
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
    """As uint8 with one scale for all."""
    step = np.float32((high - low) / 255) or np.float32(1)
    zero = np.rint(-low / step)
    return np.asarray(((np.rint(values / step) + zero).clip(0, 255) - zero) * step, np.float32)


def _rounded_columns(table: Floats) -> Floats:
    """As int8 with a scale for each column."""
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
