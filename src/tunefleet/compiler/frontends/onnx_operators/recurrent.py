"""LSTM, GRU and RNN, unrolled over their time steps.

One product takes all time steps through the input weights; every step is then a product with the
recurrent weights, [batch, hidden] x [hidden, gates * hidden], and elementwise gates. Steps are the
same program, so the tuner sees one task for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.frontends.onnx_operators.activations import ACTIVATIONS
from tunefleet.compiler.frontends.onnx_operators.node import (
    Node,
    Rule,
    constant,
    relax,
    tvm,
)

op = relax.op

#: Over all directions. Preparing the graph takes some 16 s for as many, and grows with the square.
MAX_STEPS = 512
#: TVM selects among the inputs of a concatenation for each element, so they are joined in a tree.
_FAN_IN = 8

Gates = tuple[Callable[[Any], Any], ...]


@dataclass(frozen=True, slots=True)
class _Weights:
    """One direction's constants, transposed to [in, gates * hidden]; biases are None if absent."""

    inputs: NDArray[Any]
    recurrent: NDArray[Any]
    input_bias: NDArray[Any] | None
    recurrent_bias: NDArray[Any] | None
    peepholes: NDArray[Any] | None

    @property
    def hidden(self) -> int:
        return int(self.recurrent.shape[0])

    def bias(self) -> NDArray[Any] | None:
        """Both biases, for cells that only ever add them."""
        if self.input_bias is None or self.recurrent_bias is None:
            return None
        bias: NDArray[Any] = self.input_bias + self.recurrent_bias
        return bias


@dataclass(frozen=True, slots=True)
class _State:
    """What a step hands to the next; None stands for zeros."""

    hidden: Any
    cell: Any = None


class _Cell:
    """One direction of a layer: the bias of its inputs, and its step."""

    def __init__(self, node: Node, weights: _Weights, gates: Gates, dtype: str) -> None:
        self.node = node
        self.weights = weights
        self.gates = gates
        self.dtype = dtype
        self.recurrent = constant(weights.recurrent, dtype)
        self.input_bias = weights.bias()

    def step(self, x: Any, state: _State) -> _State:
        """The next state, from a step's inputs times their weights, [batch, gates * hidden]."""
        raise NotImplementedError

    def added(self, x: Any, hidden: Any) -> Any:
        """`x` plus the recurrent product."""
        return x if hidden is None else self.node.emit(op.matmul(hidden, self.recurrent) + x)

    def gate(self, gates: Any, index: int) -> Any:
        """A gate of [batch, gates * hidden]."""
        start = index * self.weights.hidden
        end = start + self.weights.hidden
        return self.node.typed(op.strided_slice(gates, [1], [start], [end]))

    def clipped(self, x: Any) -> Any:
        """`x` within the node's threshold."""
        limit = self.node.attrs.get("clip")
        if limit:
            low, high = constant(-limit, self.dtype), constant(limit, self.dtype)
            x = op.minimum(op.maximum(x, low), high)
        return self.node.typed(x)


class _Rnn(_Cell):
    def step(self, x: Any, state: _State) -> _State:
        (f,) = self.gates
        return _State(self.node.emit(f(self.clipped(self.added(x, state.hidden)))))


class _Gru(_Cell):
    """Gates are z, r, h; the candidate's recurrent bias stays apart where it is reset too."""

    def __init__(self, node: Node, weights: _Weights, gates: Gates, dtype: str) -> None:
        super().__init__(node, weights, gates, dtype)
        self.resets_product = bool(node.attrs.get("linear_before_reset", 0))
        size = 2 * weights.hidden
        self.candidate_bias = None
        if self.resets_product:
            if weights.input_bias is not None and weights.recurrent_bias is not None:
                self.input_bias = weights.input_bias.copy()
                self.input_bias[:size] += weights.recurrent_bias[:size]
                self.candidate_bias = constant(weights.recurrent_bias[size:], dtype)
        else:
            self.gate_weights = constant(weights.recurrent[:, :size], dtype)
            self.candidate_weights = constant(weights.recurrent[:, size:], dtype)

    def step(self, x: Any, state: _State) -> _State:
        f, g = self.gates
        emit, previous = self.node.emit, state.hidden
        of_gates = op.strided_slice(x, [1], [0], [2 * self.weights.hidden])
        product = None
        if previous is not None:
            if self.resets_product:
                product = emit(op.matmul(previous, self.recurrent))
                of_gates = of_gates + op.strided_slice(product, [1], [0], [2 * self.weights.hidden])
            else:
                of_gates = op.matmul(previous, self.gate_weights) + of_gates
        both = emit(f(self.clipped(of_gates)))
        update, reset = self.gate(both, 0), self.gate(both, 1)
        candidate = self.gate(x, 2)
        if self.resets_product:
            inner = None if product is None else self.gate(product, 2)
            if self.candidate_bias is not None:
                inner = self.candidate_bias if inner is None else inner + self.candidate_bias
            if inner is not None:
                candidate = candidate + reset * inner
        elif previous is not None:
            candidate = op.matmul(emit(reset * previous), self.candidate_weights) + candidate
        candidate = emit(g(self.clipped(candidate)))
        if previous is None:
            return _State(emit(candidate - update * candidate))
        return _State(emit(candidate + update * (previous - candidate)))


class _Lstm(_Cell):
    """Gates are i, o, f, c; peepholes are i, o, f."""

    def __init__(self, node: Node, weights: _Weights, gates: Gates, dtype: str) -> None:
        super().__init__(node, weights, gates, dtype)
        self.coupled = bool(node.attrs.get("input_forget", 0))
        self.peepholes: list[Any] = [None, None, None]
        if weights.peepholes is not None:
            self.peepholes = [constant(p, dtype) for p in np.split(weights.peepholes, 3)]

    def seen(self, gates: Any, index: int, cell: Any) -> Any:
        """A gate before its activation, with what it sees of the cell."""
        gate, peephole = self.gate(gates, index), self.peepholes[index]
        if peephole is not None and cell is not None:
            gate = gate + peephole * cell
        return self.clipped(gate)

    def step(self, x: Any, state: _State) -> _State:
        f, g, h = self.gates
        emit, previous = self.node.emit, state.cell
        gates = self.added(x, state.hidden)
        i = emit(f(self.seen(gates, 0, previous)))
        cell = i * g(self.clipped(self.gate(gates, 3)))
        if previous is not None:
            kept = (
                constant(1.0, self.dtype) - i if self.coupled else f(self.seen(gates, 2, previous))
            )
            cell = kept * previous + cell
        cell = emit(cell)
        return _State(emit(f(self.seen(gates, 1, cell)) * h(cell)), cell)


_KINDS: dict[str, tuple[type[_Cell], tuple[str, ...]]] = {
    "RNN": (_Rnn, ("Tanh",)),
    "GRU": (_Gru, ("Sigmoid", "Tanh")),
    "LSTM": (_Lstm, ("Sigmoid", "Tanh", "Tanh")),
}


def _convert(node: Node) -> list[Any]:
    """Y, Y_h and, of an LSTM, Y_c."""
    kind, defaults = _KINDS[node.operator]
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        node.attrs.get("direction", "forward")
    ]
    dtype, batch_first = node.dtype(0), bool(node.attrs.get("layout", 0))
    x = node.inputs[0]
    if batch_first:
        x = node.emit(op.permute_dims(x, [1, 0, 2]))
    batch, steps = node.shape(0)[:2] if batch_first else node.shape(0)[1::-1]
    if steps * len(ways) > MAX_STEPS:
        raise NotImplementedError(f"{node.operator} of {steps} time steps")
    lengths = _lengths(node, batch, steps)
    flat = node.emit(op.reshape(x, (steps * batch, node.shape(0)[2])))
    gates = _gates(node, defaults, len(ways))
    outputs, last = [], []
    for index, backward in enumerate(ways):
        cell = kind(node, _weights(node, index), gates[index], dtype)
        order = range(steps)[::-1] if backward else range(steps)
        run = _Run(cell, batch, steps, lengths)
        hidden, state = run(run.products(flat), _initial(node, index, batch_first), order)
        outputs.append(_joined(node, hidden) if node.wants(0) else None)
        last.append(state)
    size = int(_weights(node, 0).hidden)
    results = [
        _stacked(node, outputs, (steps, 1, batch, size), 1) if node.wants(0) else None,
        _stacked(node, [state.hidden for state in last], (1, batch, size), 0),
    ]
    if node.operator == "LSTM":
        results.append(_stacked(node, [state.cell for state in last], (1, batch, size), 0))
    if batch_first:
        axes = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        results = [
            None if result is None else op.permute_dims(result, order)
            for result, order in zip(results, axes, strict=False)
        ]
    return results


@dataclass(frozen=True, slots=True)
class _Run:
    """The steps of one direction; `lengths` of the sequences are None where all are full."""

    cell: _Cell
    batch: int
    steps: int
    lengths: NDArray[Any] | None

    def products(self, flat: Any) -> Any:
        """All inputs times their weights, [steps * batch, gates * hidden]."""
        product = op.matmul(flat, constant(self.cell.weights.inputs, self.cell.dtype))
        bias = self.cell.input_bias
        return self.cell.node.emit(
            product if bias is None else product + constant(bias, self.cell.dtype)
        )

    def __call__(self, products: Any, state: _State, order: range) -> tuple[list[Any], _State]:
        """The hidden state of each step in order of time, and the last state."""
        hidden: dict[int, Any] = {}
        for step in order:
            active = None if self.lengths is None else step < self.lengths
            if active is not None and not active.any():
                hidden[step] = self.zeros()
                continue
            # The rows come as an argument, which makes one program of all steps.
            rows = np.arange(step * self.batch, (step + 1) * self.batch)
            x = op.take(products, constant(rows, "int64"), 0, mode="clip")
            after = self.cell.step(self.cell.node.emit(x), state)
            if active is None or active.all():
                hidden[step], state = after.hidden, after
                continue
            mask = constant(active[:, None], "bool")
            hidden[step] = self.chosen(mask, after.hidden, None)
            state = _State(
                self.chosen(mask, after.hidden, state.hidden),
                None if after.cell is None else self.chosen(mask, after.cell, state.cell),
            )
        return [hidden[step] for step in range(self.steps)], self.complete(state)

    def zeros(self) -> Any:
        return constant(np.zeros((self.batch, self.cell.weights.hidden)), self.cell.dtype)

    def chosen(self, mask: Any, value: Any, otherwise: Any) -> Any:
        other = self.zeros() if otherwise is None else otherwise
        return self.cell.node.emit(op.where(mask, value, other))

    def complete(self, state: _State) -> _State:
        """The state with its zeros, which remain where no sequence has a step."""
        return _State(*(self.zeros() if s is None else s for s in (state.hidden, state.cell)))


def _weights(node: Node, index: int) -> _Weights:
    arrays = [node.constant(i) for i in (1, 2, 3)]
    weights, recurrent, bias = (None if a is None else a[index] for a in arrays)
    if weights is None or recurrent is None:
        raise NotImplementedError(f"{node.operator} without weights")
    input_bias, recurrent_bias = (None, None) if bias is None else np.split(bias, 2)
    peepholes = node.constant(7) if node.operator == "LSTM" else None
    return _Weights(
        np.ascontiguousarray(weights.T),
        np.ascontiguousarray(recurrent.T),
        input_bias,
        recurrent_bias,
        None if peepholes is None else peepholes[index],
    )


def _lengths(node: Node, batch: int, steps: int) -> NDArray[Any] | None:
    lengths = node.constant(4)
    return None if lengths is None or (lengths == steps).all() else lengths


def _initial(node: Node, index: int, batch_first: bool) -> _State:
    """The state before the first step; zeros that the file holds are as good as none."""
    states: list[Any] = []
    for position in (5, 6) if node.operator == "LSTM" else (5,):
        state = node.input(position)
        if state is not None and _is_zero(node, position):
            state = None
        if state is not None:
            axis = 1 if batch_first else 0
            state = op.strided_slice(state, [axis], [index], [index + 1])
            state = node.emit(op.squeeze(state, [axis]))
        states.append(state)
    return _State(*states)


def _is_zero(node: Node, position: int) -> bool:
    try:
        value = node.constant(position)
    except NotImplementedError:
        return False
    return value is not None and not value.any()


def _gates(node: Node, defaults: tuple[str, ...], directions: int) -> list[Gates]:
    """The activations of each direction, with their alphas and betas."""
    names = node.attrs.get("activations") or list(defaults) * directions
    if len(names) != len(defaults) * directions:
        raise NotImplementedError(f"{node.operator} with activations {names}")
    alphas = iter(node.attrs.get("activation_alpha", ()))
    betas = iter(node.attrs.get("activation_beta", ()))
    functions = [_activation(name, alphas, betas) for name in names]
    size = len(defaults)
    return [tuple(functions[i * size : (i + 1) * size]) for i in range(directions)]


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Callable[[Any], Any]:
    if name.lower() not in ACTIVATIONS:
        raise NotImplementedError(f"the activation {name}")
    function, alpha, beta = ACTIVATIONS[name.lower()]
    # Only a function that takes a parameter consumes one.
    alpha = alpha if alpha is None else float(next(alphas, alpha))
    beta = beta if beta is None else float(next(betas, beta))
    return lambda x: function(x, alpha, beta)


def _joined(node: Node, parts: list[Any]) -> Any:
    """Parts of [batch, hidden] below one another."""
    while len(parts) > 1:
        groups = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
        parts = [_concatenated(node, group) for group in groups]
    return parts[0]


def _concatenated(node: Node, parts: list[Any]) -> Any:
    """A program that is fused with nothing: the tree would become one, as slow as no tree."""
    if len(parts) == 1:
        return parts[0]
    opaque = {"op_pattern": 8}
    return node.builder.emit_te(tvm.topi.concatenate, parts, 0, primfunc_attrs=opaque)


def _stacked(node: Node, directions: list[Any], shape: tuple[int, ...], axis: int) -> Any:
    parts = [node.emit(op.reshape(direction, shape)) for direction in directions]
    return parts[0] if len(parts) == 1 else node.emit(op.concat(parts, axis))


RULES: dict[tuple[str, str], Rule] = {("", operator): _convert for operator in _KINDS}
