"""LSTM, GRU and RNN."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, cast

from tunefleet.compiler.frontends.onnx_operators.node import Node, Rule, constant_value, relax
from tunefleet.compiler.graph.activations import Activation
from tunefleet.compiler.graph.recurrence import Layer, Numbers, emit

op = relax.op

_DEFAULTS: dict[str, tuple[str, ...]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _convert(node: Node) -> list[Any]:
    """Y, Y_h and, of an LSTM, Y_c."""
    backward = _DIRECTIONS[node.attrs.get("direction", "forward")]
    batch_first = bool(node.attrs.get("layout", 0))
    x, initial = node.inputs[0], [node.input(5), node.input(6)]
    if batch_first:
        x = node.emit(op.permute_dims(x, [1, 0, 2]))
        initial = [None if s is None else op.permute_dims(s, [1, 0, 2]) for s in initial]
    states = [None if s is None or _is_zero(s) else node.emit(s) for s in initial]
    steps, batch = node.shape(0)[1::-1] if batch_first else node.shape(0)[:2]
    lengths = None if _are_full(node.input(4), steps) else node.input(4)
    weights, recurrent, bias, peepholes = (node.input(i) for i in (1, 2, 3, 7))
    numbers = Numbers(weights, recurrent, bias, peepholes, lengths, *states)
    parts = []
    for start, end, activations in _groups(node, len(backward)):
        layer = Layer(
            operator=cast(Literal["RNN", "GRU", "LSTM"], node.operator),
            steps=steps,
            batch=batch,
            inputs=node.shape(0)[2],
            hidden=node.shape(2)[2],
            backward=backward[start:end],
            activations=activations,
            clip=node.attrs.get("clip"),
            coupled=bool(node.attrs.get("input_forget", 0)),
            resets_product=bool(node.attrs.get("linear_before_reset", 0)),
        )
        parts.append(emit(node.builder, layer, x, _of(node, numbers, start, end)))
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
    if x is None or (start, end) == (0, int(x.ty.shape.values[0])):
        return x
    return node.emit(op.strided_slice(x, [0], [start], [end]))


def _together(node: Node, parts: list[Any], axis: int) -> Any:
    if len(parts) == 1 or parts[0] is None:
        return parts[0]
    return node.emit(op.concat(parts, axis))


def _is_zero(state: Any) -> bool:
    """Zeros that the file holds are as good as no state."""
    value = constant_value(state)
    return value is not None and not value.any()


def _are_full(lengths: Any, steps: int) -> bool:
    value = None if lengths is None else constant_value(lengths)
    return lengths is None or (value is not None and bool((value >= steps).all()))


def _groups(node: Node, directions: int) -> Iterator[tuple[int, int, tuple[Activation, ...]]]:
    """Directions of equal activations, from the first to behind the last."""
    defaults = _DEFAULTS[node.operator]
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


RULES: dict[tuple[str, str], Rule] = {("", operator): _convert for operator in _DEFAULTS}
