"""LSTM, GRU and RNN of torch: one program for each layer (`compiler/graph/recurrence.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from tunefleet.compiler.graph.activations import Activation
from tunefleet.compiler.graph.recurrence import Layer, Numbers, RecurrentKind, emit
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

_SIGMOID, _TANH, _RELU = Activation("sigmoid"), Activation("tanh"), Activation("relu")
#: Where the gates of ONNX, of which `Layer` tells, lie among those of torch.
_ORDER: dict[RecurrentKind, tuple[int, ...]] = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def _lstm(t: Any, node: Node) -> list[Any]:
    """Output, last hidden states and last cells of all layers."""
    x, states, weights, *form = t.retrieve_args(node)
    return _layers(t.block_builder, "LSTM", x, states, weights, form, (_SIGMOID, _TANH, _TANH))


def _gru(t: Any, node: Node) -> list[Any]:
    x, hidden, weights, *form = t.retrieve_args(node)
    return _layers(t.block_builder, "GRU", x, [hidden], weights, form, (_SIGMOID, _TANH))


def _rnn(activation: Activation) -> Any:
    def convert(t: Any, node: Node) -> list[Any]:
        x, hidden, weights, *form = t.retrieve_args(node)
        return _layers(t.block_builder, "RNN", x, [hidden], weights, form, (activation,))

    return convert


def _layers(
    builder: Any,
    operator: RecurrentKind,
    x: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    form: Sequence[Any],
    activations: tuple[Activation, ...],
) -> list[Any]:
    """`form`: has_biases, num_layers, dropout, train, bidirectional, batch_first."""
    biases, count, dropout, train, bidirectional, batch_first = form
    if dropout and train:
        raise NotImplementedError("dropout between layers that trains")
    directions = 2 if bidirectional else 1
    each = 4 if biases else 2
    if len(weights) != each * count * directions:
        raise NotImplementedError("hidden states that are projected")
    if batch_first:
        x = builder.emit(op.permute_dims(x, [1, 0, 2]))
    last: list[list[Any]] = [[] for _ in states]
    for index in range(count):
        start = index * directions
        parts = [weights[(start + d) * each : (start + d + 1) * each] for d in range(directions)]
        steps, batch, inputs = (int(extent) for extent in x.ty.shape)
        hidden = int(parts[0][1].ty.shape[1])
        backward = (False, True)[:directions]
        resets = operator == "GRU"
        layer = Layer(
            operator, steps, batch, inputs, hidden, backward, activations, resets_product=resets
        )
        of_inputs, of_state, *shifts = (
            _joined(builder, operator, [part[i] for part in parts], hidden) for i in range(each)
        )
        numbers = Numbers(
            of_inputs,
            of_state,
            builder.emit(op.concat(shifts, 1)) if shifts else None,
            None,
            None,
            *(
                builder.emit(op.strided_slice(state, [0], [start], [start + directions]))
                for state in states
            ),
        )
        output, *finals = emit(builder, layer, x, numbers)
        for results, result in zip(last, finals, strict=False):
            results.append(result)
        turned = builder.emit(op.permute_dims(output, [0, 2, 1, 3]))
        x = builder.emit(op.reshape(turned, (steps, batch, directions * hidden)))
    if batch_first:
        x = builder.emit(op.permute_dims(x, [1, 0, 2]))
    return [x, *(builder.emit(op.concat(results, 0)) for results in last)]


def _joined(builder: Any, operator: RecurrentKind, parts: Sequence[Any], hidden: int) -> Any:
    """The weights of all directions, below one another, with the gates in the order of ONNX."""
    turned = []
    for part in parts:
        gates = [
            builder.emit(op.strided_slice(part, [0], [gate * hidden], [(gate + 1) * hidden]))
            for gate in _ORDER[operator]
        ]
        turned.append(builder.emit(op.expand_dims(op.concat(gates, 0), 0)))
    return builder.emit(op.concat(turned, 0))


#: By the name of the torch operator.
RECURRENT_RULES: dict[str, Any] = {
    "lstm.input": _lstm,
    "gru.input": _gru,
    "rnn_tanh.input": _rnn(_TANH),
    "rnn_relu.input": _rnn(_RELU),
}
