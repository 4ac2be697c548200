"""LSTM, GRU and RNN layers: one program that runs all time steps of all directions.

The inputs of all steps are multiplied by their weights before, in one product that is tuned like
any other. What is left is a loop over time with a product of a vector, or of a few rows, and a
matrix in each step. The matrix is packed so that all gates of a few hidden units are summed up in
registers, one after another through memory, and so never leave them before their activations.
Directions, and rows of the batch, run in parallel.

Where weights are 8-bit integers and the network quantises its activations as it runs, so does each
step with its state: a quarter of the memory is read, and sums are those of integers.

Steps depend on one another, so MetaSchedule has nothing to choose: the program is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tunefleet.compiler.graph.activations import Activation
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax
op = relax.op

RecurrentKind = Literal["RNN", "GRU", "LSTM"]
GATES: Mapping[RecurrentKind, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}

#: Sums of a block of units that fit into the registers of AVX2 with enough of them in flight.
_SUMS = 64
#: Rows of the batch that share what is read of the matrix.
_MOST_ROWS = 3
_LEAST_UNITS = 8
#: Bytes of a unit's weights that are multiplied at once.
BYTES = 64


@dataclass(frozen=True, slots=True)
class Layer:
    """A recurrent layer as ONNX defines it, its numbers aside.

    `backward` has an entry for each direction; `activations` are those of every direction, f, g
    and h as far as the operator has them. `coupled`: an LSTM that forgets what it does not take
    in. `resets_product`: a GRU that resets what its state gives, not the state. `in_bytes`: states
    are multiplied as 8-bit integers by such (of one phase only).
    """

    operator: RecurrentKind
    steps: int
    batch: int
    inputs: int
    hidden: int
    backward: tuple[bool, ...]
    activations: tuple[Activation, ...]
    clip: float | None = None
    coupled: bool = False
    resets_product: bool = False
    in_bytes: bool = False

    @property
    def directions(self) -> int:
        return len(self.backward)

    @property
    def rows(self) -> int:
        """How many rows of the batch are computed together."""
        return next(n for n in range(_MOST_ROWS, 0, -1) if self.batch % n == 0)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The gates in the order in which a step can know them."""
        every = tuple(range(GATES[self.operator]))
        if self.operator == "GRU" and not self.resets_product:
            return self._phase(every[:2]), self._phase(every[2:])
        return (self._phase(every),)

    def _phase(self, gates: tuple[int, ...]) -> Phase:
        most = _SUMS // self.rows // len(gates)
        needed = max(_LEAST_UNITS, 1 << (self.hidden - 1).bit_length())
        return Phase(gates, min(needed, max(_LEAST_UNITS, 1 << most.bit_length() - 1)))

    @property
    def padded(self) -> int:
        """Hidden units with those that fill the last block."""
        units = max(phase.units for phase in self.phases)
        return -(-self.hidden // units) * units

    @property
    def depth(self) -> int:
        """Bytes of a unit's weights, with zeros that fill the last of `BYTES`."""
        return -(-self.hidden // BYTES) * BYTES

    @property
    def width(self) -> int:
        """Columns of the products of a direction."""
        return GATES[self.operator] * self.padded


@dataclass(frozen=True, slots=True)
class Phase:
    """Gates that are known together, and of how many hidden units they are summed up at once."""

    gates: tuple[int, ...]
    units: int


@dataclass(frozen=True, slots=True)
class ByteWeights:
    """`integers` int8 [directions, gates * hidden, n], less `points` int32, times `scales` float32
    (both [directions, gates * hidden]). `totals` int32 are the sums over n of integers less
    points. `points` is None where all are zero."""

    integers: Any
    scales: Any
    totals: Any
    points: Any = None


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a layer computes with, as Relax expressions in the shapes and orders of gates of ONNX.

    `weights` [directions, gates * hidden, inputs] and `recurrent` [directions, gates * hidden,
    hidden], or as `ByteWeights`, `bias` [directions, 2 * gates * hidden], `peepholes` [directions,
    3 * hidden], `lengths` [batch] int32, the states before the first step [directions, batch,
    hidden].
    """

    weights: Any
    recurrent: Any
    bias: Any = None
    peepholes: Any = None
    lengths: Any = None
    hidden: Any = None
    cell: Any = None


#: Of inputs [steps * batch, inputs] and packed weights [inputs, columns] their product in floats.
Multiply = Callable[[Any, Any], Any]


def emit(
    builder: Any, layer: Layer, x: Any, numbers: Numbers, multiply: Multiply | None = None
) -> tuple[Any, Any, Any]:
    """All hidden states [steps, directions, batch, hidden], the last ones [directions, batch,
    hidden], and the last cells of an LSTM (else None). `x` is [steps, batch, inputs]. `multiply` is
    told how, where weights are `ByteWeights`, and gets them packed."""
    packer = _Packer(builder, layer)
    flat = builder.emit(op.reshape(x, (layer.steps * layer.batch, layer.inputs)))
    packed = packer.weights(numbers.weights)
    products = builder.emit(multiply(flat, packed) if multiply else op.matmul(flat, packed))
    gates = GATES[layer.operator] * layer.hidden
    given: dict[str, Any] = {}
    if numbers.bias is not None:
        of_inputs, of_state = (
            packer.part(numbers.bias, 1, i * gates, (i + 1) * gates) for i in range(2)
        )
        if layer.resets_product:
            start = 2 * layer.hidden
            given["bias"] = packer.padded(packer.part(of_state, 1, start, gates))
            rest = packer.part(of_state, 1, 0, start)
            zeros = packer.zeros((layer.directions, layer.hidden), of_state)
            of_state = builder.emit(op.concat([rest, zeros], 1))
        bias = packer.columns(builder.emit(of_inputs + of_state))
        products = builder.emit(products + bias)
    given["products"] = products
    given |= packer.recurrent(numbers.recurrent)
    if numbers.peepholes is not None:
        shape = (layer.directions, 3, layer.hidden)
        given["peepholes"] = packer.padded(builder.emit(op.reshape(numbers.peepholes, shape)))
    for name in ("lengths", "hidden", "cell"):
        if getattr(numbers, name) is not None:
            given[name] = getattr(numbers, name)
    from tunefleet.compiler.graph.recurrence_loop import call_layer

    outputs = builder.emit(call_layer(builder, layer, given))
    results = [builder.emit(relax.TupleGetItem(outputs, i)) for i in range(2)]
    cell = builder.emit(relax.TupleGetItem(outputs, 2)) if layer.operator == "LSTM" else None
    return results[0], results[1], cell


class _Packer:
    """Weights in the order in which the program reads them; those that are constant become
    constants when the graph is simplified."""

    def __init__(self, builder: Any, layer: Layer) -> None:
        self._emit = builder.emit
        self._layer = layer

    def part(self, x: Any, axis: int, start: int, end: int) -> Any:
        return self._emit(op.strided_slice(x, [axis], [start], [end]))

    def zeros(self, shape: tuple[int, ...], like: Any) -> Any:
        dtype = str(like.ty.dtype)
        zero = relax.const(0, dtype)
        return self._emit(op.broadcast_to(zero, shape))

    def padded(self, x: Any, axis: int = -1) -> Any:
        """With zeros behind the hidden units, which are an axis."""
        missing = self._layer.padded - self._layer.hidden
        if not missing:
            return x
        shape = [int(extent) for extent in x.ty.shape.values]
        shape[axis] = missing
        return self._emit(op.concat([x, self.zeros(tuple(shape), x)], axis % len(shape)))

    def weights(self, weights: Any) -> Any:
        """[inputs, directions * width], and of `ByteWeights` all else [directions * width]."""
        if isinstance(weights, ByteWeights):
            return ByteWeights(
                self._matrix(weights.integers),
                self.columns(weights.scales),
                self.columns(weights.totals),
                None if weights.points is None else self.columns(weights.points),
            )
        return self._matrix(weights)

    def _matrix(self, weights: Any) -> Any:
        layer = self._layer
        split = self._split(weights, (layer.inputs,))
        parts = []
        for phase in layer.phases:
            part = self._blocked(split, phase, (layer.inputs,))
            order = self._emit(op.permute_dims(part, [4, 0, 2, 1, 3]))
            size = len(phase.gates) * layer.padded
            parts.append(self._emit(op.reshape(order, (layer.inputs, layer.directions, size))))
        whole = parts[0] if len(parts) == 1 else self._emit(op.concat(parts, 2))
        return self._emit(op.reshape(whole, (layer.inputs, layer.directions * layer.width)))

    def columns(self, bias: Any) -> Any:
        """[directions, gates * hidden] -> [directions * width]."""
        layer = self._layer
        split = self._split(bias, ())
        parts = []
        for phase in layer.phases:
            part = self._emit(op.permute_dims(self._blocked(split, phase, ()), [0, 2, 1, 3]))
            shape = (layer.directions, len(phase.gates) * layer.padded)
            parts.append(self._emit(op.reshape(part, shape)))
        whole = parts[0] if len(parts) == 1 else self._emit(op.concat(parts, 1))
        return self._emit(op.reshape(whole, (layer.directions * layer.width,)))

    def recurrent(self, weights: Any) -> dict[str, Any]:
        """For each phase a matrix [directions, blocks, hidden, gates, units], or of `ByteWeights`
        one [directions, blocks, gates, units, depth], and all else [directions, blocks, gates,
        units]."""
        layer = self._layer
        if not isinstance(weights, ByteWeights):
            return {
                f"matrix{index}": self._by_blocks(weights, phase, [0, 2, 4, 1, 3], layer.hidden)
                for index, phase in enumerate(layer.phases)
            }
        (phase,) = layer.phases
        matrix = self._by_blocks(weights.integers, phase, [0, 2, 1, 3, 4], layer.hidden)
        if layer.depth > layer.hidden:
            shape = [int(extent) for extent in matrix.ty.shape.values[:-1]]
            zeros = self.zeros((*shape, layer.depth - layer.hidden), matrix)
            matrix = self._emit(op.concat([matrix, zeros], 4))
        rest = {"scales": weights.scales, "totals": weights.totals, "points": weights.points}
        return {"matrix0": matrix} | {
            name: self._by_blocks(value, phase, [0, 2, 1, 3])
            for name, value in rest.items()
            if value is not None
        }

    def _by_blocks(self, x: Any, phase: Phase, order: list[int], *rest: int) -> Any:
        return self._emit(op.permute_dims(self._blocked(self._split(x, rest), phase, rest), order))

    def _split(self, x: Any, rest: tuple[int, ...]) -> Any:
        """[directions, gates, padded, *rest]."""
        layer = self._layer
        shape = (layer.directions, GATES[layer.operator], layer.hidden, *rest)
        return self.padded(self._emit(op.reshape(x, shape)), axis=2)

    def _blocked(self, split: Any, phase: Phase, rest: tuple[int, ...]) -> Any:
        """[directions, gates, blocks, units, *rest] of the gates of a phase."""
        layer = self._layer
        if len(phase.gates) < GATES[layer.operator]:
            split = self.part(split, 1, phase.gates[0], phase.gates[-1] + 1)
        blocks = layer.padded // phase.units
        shape = (layer.directions, len(phase.gates), blocks, phase.units, *rest)
        return self._emit(op.reshape(split, shape))
