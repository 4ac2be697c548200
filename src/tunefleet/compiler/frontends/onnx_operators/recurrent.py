"""LSTM, GRU and RNN, and the LSTM of ONNX Runtime's dynamic quantisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, cast

import numpy as np

from tunefleet.compiler.frontends.onnx_operators.integers import (
    centered,
    quantized_by_values,
    scaled,
)
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    constant_value,
    dtype_of,
    relax,
    shape_of,
)
from tunefleet.compiler.graph.activations import Activation
from tunefleet.compiler.graph.recurrence import ByteWeights, Layer, Multiply, Numbers, emit

op = relax.op

_DEFAULTS: dict[str, tuple[str, ...]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _convert(node: Node) -> list[Any]:
    """Y, Y_h and, of an LSTM, Y_c."""
    operator = cast(Literal["RNN", "GRU", "LSTM"], node.operator)
    return _layers(node, operator, node.input(1), node.input(2), node.shape(2)[2])


def _convert_in_bytes(node: Node) -> list[Any]:
    """As of an LSTM; scales and zero points of the weights are inputs 8 to 11."""
    weights, recurrent = _byte_weights(node, 1, 8), _byte_weights(node, 2, 10)

    def multiply(x: Any, packed: Any) -> Any:
        integers, scale, zero = quantized_by_values(node, x)
        sums = op.matmul(
            centered(node, integers, zero), centered(node, packed.integers, packed.points, -1)
        )
        return scaled(node, sums, node.emit(op.multiply(scale, packed.scales)), None)

    return _layers(node, "LSTM", weights, recurrent, node.shape(2)[1], multiply)


def _byte_weights(node: Node, index: int, scale: int) -> ByteWeights:
    """Of weights [directions, n, 4 * hidden], scales for each direction or also each column."""
    integers = np.swapaxes(node.known(index), 1, 2).astype("int32")
    points = node.constant(scale + 1)
    points = np.zeros(1, "int32") if points is None else points.astype("int32")
    if node.dtype(index) == "uint8":
        integers, points = integers - 128, points - 128
    each = integers.shape[:2]
    scales, points = (
        np.broadcast_to(of.reshape(of.shape[0], -1), each) for of in (node.known(scale), points)
    )
    totals = integers.sum(axis=2) - integers.shape[2] * points
    return ByteWeights(
        constant(integers, "int8"),
        constant(scales, "float32"),
        constant(totals, "int32"),
        constant(points, "int32") if points.any() else None,
    )


def _layers(
    node: Node,
    operator: Literal["RNN", "GRU", "LSTM"],
    weights: Any,
    recurrent: Any,
    hidden: int,
    multiply: Multiply | None = None,
) -> list[Any]:
    backward = _DIRECTIONS[node.attrs.get("direction", "forward")]
    batch_first = bool(node.attrs.get("layout", 0))
    x, initial = node.inputs[0], [node.input(5), node.input(6)]
    if batch_first:
        x = node.emit(op.permute_dims(x, [1, 0, 2]))
        initial = [None if s is None else op.permute_dims(s, [1, 0, 2]) for s in initial]
    states = [None if s is None or _is_zero(s) else node.emit(s) for s in initial]
    steps, batch = node.shape(0)[1::-1] if batch_first else node.shape(0)[:2]
    lengths = None if _are_full(node.input(4), steps) else node.input(4)
    bias, peepholes = node.input(3), node.input(7)
    if multiply is not None and lengths is not None:
        x = _zero_beyond(node, x, lengths)
    numbers = Numbers(weights, recurrent, bias, peepholes, lengths, *states)
    parts = []
    for start, end, activations in _groups(node, operator, len(backward)):
        layer = Layer(
            operator=operator,
            steps=steps,
            batch=batch,
            inputs=node.shape(0)[2],
            hidden=hidden,
            backward=backward[start:end],
            activations=activations,
            clip=node.attrs.get("clip"),
            coupled=bool(node.attrs.get("input_forget", 0)),
            resets_product=bool(node.attrs.get("linear_before_reset", 0)),
            in_bytes=multiply is not None,
        )
        parts.append(emit(node.builder, layer, x, _of(node, numbers, start, end), multiply))
    results = [_together(node, [part[i] for part in parts], 1 if i == 0 else 0) for i in range(3)]
    if batch_first:
        orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        results = [
            None if result is None else op.permute_dims(result, order)
            for result, order in zip(results, orders, strict=True)
        ]
    return results


def _of(node: Node, numbers: Numbers, start: int, end: int) -> Numbers:
    """Those of some of the directions."""
    fields = {field.name: getattr(numbers, field.name) for field in dataclasses.fields(numbers)}
    lengths = fields.pop("lengths")
    own = {name: _directions(node, given, start, end) for name, given in fields.items()}
    return Numbers(**own, lengths=lengths)


def _directions(node: Node, x: Any, start: int, end: int) -> Any:
    if isinstance(x, ByteWeights):
        fields = [getattr(x, field.name) for field in dataclasses.fields(x)]
        return ByteWeights(*(_directions(node, of, start, end) for of in fields))
    if x is None or (start, end) == (0, int(x.ty.shape.values[0])):
        return x
    return node.emit(op.strided_slice(x, [0], [start], [end]))


def _together(node: Node, parts: list[Any], axis: int) -> Any:
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    return node.emit(op.concat(parts, axis))


def _zero_beyond(node: Node, x: Any, lengths: Any) -> Any:
    """Steps that no sequence has say nothing of the range of all."""
    longest = node.emit(op.max(op.astype(lengths, "int32")))
    steps = constant(np.arange(shape_of(x)[0]).reshape(-1, 1, 1), "int32")
    return node.emit(op.where(op.less(steps, longest), x, constant(0, dtype_of(x))))


def _is_zero(state: Any) -> bool:
    """Zeros that the file holds are as good as no state."""
    value = constant_value(state)
    return value is not None and not value.any()


def _are_full(lengths: Any, steps: int) -> bool:
    value = None if lengths is None else constant_value(lengths)
    return lengths is None or (value is not None and bool((value >= steps).all()))


def _groups(
    node: Node, operator: str, directions: int
) -> Iterator[tuple[int, int, tuple[Activation, ...]]]:
    """Directions of equal activations, from the first to behind the last."""
    defaults = _DEFAULTS[operator]
    names = node.attrs.get("activations") or list(defaults) * directions
    if len(names) != len(defaults) * directions:
        raise NotImplementedError(f"{node.operator} with activations {names}")
    alphas = iter(node.attrs.get("activation_alpha", ()))
    betas = iter(node.attrs.get("activation_beta", ()))
    functions = [_activation(name.lower(), alphas, betas) for name in names]
    size = len(defaults)
    each = [tuple(functions[i * size : (i + 1) * size]) for i in range(directions)]
    if len(set(each)) == 1:
        yield 0, directions, each[0]
        return
    for index, activations in enumerate(each):
        yield index, index + 1, activations


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    """Only a function that takes a parameter consumes one."""
    takes_alpha, takes_beta = Activation(name).parameters
    return Activation(
        name,
        next(alphas, None) if takes_alpha else None,
        next(betas, None) if takes_beta else None,
    )


RULES: dict[tuple[str, str], Rule] = {
    **{("", operator): _convert for operator in _DEFAULTS},
    ("com.microsoft", "DynamicQuantizeLSTM"): _convert_in_bytes,
}
