"""The loop over time of a recurrent layer, written in TIR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.graph.byte_state import ByteState
from tunefleet.compiler.graph.loops import T, allocated, call_loops, sum_type
from tunefleet.compiler.graph.recurrence import Layer, Phase, RecurrentKind
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx

#: Threads share the units of one sequence where a step reads at least so much of weights: they wait
#: for each other after each step, some microseconds.
_SHARED_BYTES = 2**19


def call_layer(builder: Any, layer: Layer, given: Mapping[str, Any]) -> Any:
    """A call that gives all hidden states, the last ones, and the last cells of an LSTM.

    `given` are tensors by name: `products` [steps * batch, directions * width], `matrix0` and,
    with a second phase, `matrix1` [directions, blocks, hidden, gates, units], or of a layer in
    bytes `matrix0` [directions, blocks, gates, units, depth] and `scales`, `totals` and, where
    there are any, `points` [directions, blocks, gates, units]. Where there are any, also `bias`
    [directions, padded] of what a GRU resets, `peepholes` [directions, 3, padded], `lengths`
    [batch], the first states `hidden` and `cell` [directions, batch, hidden].
    """
    dtype = str(given["products"].ty.dtype)
    last = (layer.directions, layer.batch, layer.hidden)
    shapes = [(layer.steps, *last), last, *([last] if layer.operator == "LSTM" else [])]
    types = [relax.TensorType(shape, dtype) for shape in shapes]

    def write(inputs: list[Any], outputs: list[Any]) -> None:
        _Loop(layer, dtype, dict(zip(given, inputs, strict=True)), outputs).write()

    return call_loops(builder, layer.operator.lower(), list(given.values()), types, write)


class _Loop:
    """Writes the program. Each thread has a direction, some rows of the batch, and their state;
    where there is but one of these and it is large, threads share its units in each step."""

    def __init__(
        self, layer: Layer, dtype: str, given: Mapping[str, Any], outputs: list[Any]
    ) -> None:
        self.layer = layer
        self.given = given
        #: Made when a thread starts; a layer without a cell, or without a second phase, has none.
        self.cell: Any = None
        self.reset: Any = None
        self._dtype = dtype
        self._sum_type = sum_type(dtype)
        self._outputs = outputs

    def write(self) -> None:
        layer = self.layer
        groups = layer.batch // layer.rows
        together = layer.directions * groups
        self.shared = together == 1 and self._step_bytes() >= _SHARED_BYTES
        with (T.parallel if together > 1 else T.serial)(0, together) as thread:
            self.direction = thread // groups
            self.first = thread % groups * layer.rows
            shape = [layer.rows, layer.padded]
            self.state, self.next = self._buffer(shape), self._buffer(shape)
            if layer.operator == "LSTM":
                self.cell = self._buffer(shape)
            if len(layer.phases) > 1:
                self.reset = self._buffer(shape)
            self._start(self.state, "hidden")
            self._start(self.cell, "cell")
            if layer.in_bytes:
                self.integers = ByteState(self.layer, self.state, self.given, self.direction)
            with T.serial(0, layer.steps) as step:
                time = self._time(step)
                if layer.in_bytes:
                    self.integers.take()
                for index in range(len(layer.phases)):
                    self._phase(index, time)
                self._finish(time)
            self._store_last()

    def _step_bytes(self) -> int:
        """Bytes of weights that one step reads."""
        gates = sum(len(phase.gates) for phase in self.layer.phases)
        bits = 8 if self.layer.in_bytes else int(tvm.DataType(self._dtype).bits)
        return self.layer.hidden * self.layer.padded * gates * bits // 8

    def number(self, value: float) -> Any:
        return tirx.const(value, self._sum_type)

    def wide(self, value: Any) -> Any:
        """A number that was given, in the type of sums."""
        return value if self._dtype == self._sum_type else value.astype(self._sum_type)

    def _buffer(self, shape: list[int]) -> Any:
        return allocated(shape, self._sum_type)

    def _time(self, step: Any) -> Any:
        backward, last = self.layer.backward, self.layer.steps - 1
        if all(backward):
            return last - step
        if not any(backward):
            return step
        return tirx.Select(self.direction == backward.index(True), last - step, step)

    def _start(self, buffer: Any, name: str) -> None:
        if buffer is None:
            return
        source, layer = self.given.get(name), self.layer
        for row in range(layer.rows):
            with T.serial(0, layer.padded) as unit:
                buffer[row, unit] = self.number(0.0)
            if source is not None:
                with T.serial(0, layer.hidden) as unit:
                    value = source[self.direction, self.first + row, unit]
                    buffer[row, unit] = self.wide(value)

    def _phase(self, index: int, time: Any) -> None:
        """Gates of all units, a block at a time: sums over the state, then their activations."""
        layer, phase = self.layer, self.layer.phases[index]
        source = self.reset if index else self.state
        with (T.parallel if self.shared else T.serial)(0, layer.padded // phase.units) as block:
            sums = self._buffer([layer.rows, len(phase.gates), phase.units])
            if layer.in_bytes:
                self.integers.multiply(phase, block, sums)
            else:
                self._multiply(source, self.given[f"matrix{index}"], phase, block, sums)
            for row in range(layer.rows):
                _CELLS[layer.operator](_Block(self, phase, block, time, row, sums))

    def _multiply(self, source: Any, matrix: Any, phase: Phase, block: Any, sums: Any) -> None:
        rows, gates = range(self.layer.rows), range(len(phase.gates))
        for row in rows:
            for gate in gates:
                with T.vectorized(0, phase.units) as unit:
                    sums[row, gate, unit] = self.number(0.0)
        with T.serial(0, self.layer.hidden) as k:
            for row in rows:
                for gate in gates:
                    with T.vectorized(0, phase.units) as unit:
                        weight = self.wide(matrix[self.direction, block, k, gate, unit])
                        total = sums[row, gate, unit] + source[row, k] * weight
                        sums[row, gate, unit] = total

    def _finish(self, time: Any) -> None:
        """What was computed becomes the state, and is given out. A sequence that has ended gives
        zeros: its state is as it was."""
        for row in range(self.layer.rows):
            active = self.active(row, time)
            with T.serial(0, self.layer.hidden) as unit:
                value = self.next[row, unit]
                given_out = value if active is None else tirx.Select(active, value, self.number(0))
                target = self._outputs[0]
                place = (time, self.direction, self.first + row, unit)
                target[place] = given_out.astype(self._dtype)
                self.state[row, unit] = value

    def active(self, row: int, time: Any) -> Any:
        """Whether a sequence still runs, None where all do to the end."""
        lengths = self.given.get("lengths")
        return None if lengths is None else time < lengths[self.first + row]

    def _store_last(self) -> None:
        for buffer, output in zip((self.state, self.cell), self._outputs[1:], strict=False):
            for row in range(self.layer.rows):
                with T.serial(0, self.layer.hidden) as unit:
                    value = buffer[row, unit].astype(self._dtype)
                    output[self.direction, self.first + row, unit] = value


@dataclass(frozen=True, slots=True)
class _Block:
    """The gates of a few units of one row, in registers. A step of it is a loop over the units."""

    loop: _Loop
    phase: Phase
    block: Any
    time: Any
    row: int
    sums: Any

    def each(self, step: Callable[[_Unit], None]) -> None:
        with T.vectorized(0, self.phase.units) as unit:
            step(_Unit(self, unit))


@dataclass(frozen=True, slots=True)
class _Unit:
    """One hidden unit of a block, and what a cell asks of it.

    An activation takes a gate that is stored: its argument stands in it several times.
    """

    block: _Block
    unit: Any

    @property
    def index(self) -> Any:
        """Its place among all units."""
        return self.block.block * self.block.phase.units + self.unit

    def __getitem__(self, gate: int) -> Any:
        block = self.block
        return block.sums[block.row, gate - block.phase.gates[0], self.unit]

    def __setitem__(self, gate: int, value: Any) -> None:
        block = self.block
        block.sums[block.row, gate - block.phase.gates[0], self.unit] = value

    def of(self, buffer: Any) -> Any:
        """What a buffer of the thread holds for it."""
        return buffer[self.block.row, self.index]

    def put(self, buffer: Any, value: Any) -> None:
        """Writes to a buffer of the thread, unless the sequence has ended."""
        active = self.block.loop.active(self.block.row, self.block.time)
        if active is not None:
            value = tirx.Select(active, value, self.of(self.block.loop.state))
        buffer[self.block.row, self.index] = value

    def of_inputs(self, gate: int) -> Any:
        """What the inputs of a step give to a gate."""
        block, loop, layer = self.block, self.block.loop, self.block.loop.layer
        gates = block.phase.gates
        place = (block.block * len(gates) + gate - gates[0]) * block.phase.units + self.unit
        column = loop.direction * layer.width + gates[0] * layer.padded + place
        row = block.time * layer.batch + loop.first + block.row
        return loop.wide(loop.given["products"][row, column])

    def given(self, name: str, *place: int) -> Any:
        """A weight of this unit, None where the layer has none of that name."""
        source = self.block.loop.given.get(name)
        if source is None:
            return None
        return self.block.loop.wide(source[(self.block.loop.direction, *place, self.index)])

    def clipped(self, x: Any) -> Any:
        loop = self.block.loop
        limit = loop.layer.clip
        if not limit:
            return x
        return tirx.min(tirx.max(x, loop.number(-limit)), loop.number(limit))

    def activated(self, function: int, x: Any) -> Any:
        """`x`, which was stored, through one of the functions f, g and h of the layer."""
        return self.block.loop.layer.activations[function](x)


def _rnn(block: _Block) -> None:
    def add(unit: _Unit) -> None:
        unit[0] = unit.clipped(unit[0] + unit.of_inputs(0))

    def activate(unit: _Unit) -> None:
        unit.put(block.loop.next, unit.activated(0, unit[0]))

    block.each(add)
    block.each(activate)


def _gru(block: _Block) -> None:
    """Gates are z, r and the candidate, which a second phase computes unless the reset is applied
    to what the state gives to it."""
    loop = block.loop
    has_candidate = 2 in block.phase.gates

    def add(unit: _Unit) -> None:
        for gate in (0, 1):
            unit[gate] = unit.clipped(unit[gate] + unit.of_inputs(gate))

    def activate(unit: _Unit) -> None:
        for gate in (0, 1):
            unit[gate] = unit.activated(0, unit[gate])

    def reset(unit: _Unit) -> None:
        loop.reset[block.row, unit.index] = unit[1] * unit.of(loop.state)
        # Kept until the second phase.
        loop.next[block.row, unit.index] = unit[0]

    def candidate(unit: _Unit) -> None:
        of_state = unit[2]
        if loop.layer.resets_product:
            bias = unit.given("bias")
            of_state = unit[1] * (of_state if bias is None else of_state + bias)
        unit[2] = unit.clipped(of_state + unit.of_inputs(2))

    def activate_candidate(unit: _Unit) -> None:
        unit[2] = unit.activated(1, unit[2])

    def mix(unit: _Unit) -> None:
        update = unit[0] if loop.layer.resets_product else unit.of(loop.next)
        unit.put(loop.next, unit[2] + update * (unit.of(loop.state) - unit[2]))

    if 0 in block.phase.gates:
        block.each(add)
        block.each(activate)
    if not has_candidate:
        block.each(reset)
        return
    for step in (candidate, activate_candidate, mix):
        block.each(step)


def _lstm(block: _Block) -> None:
    """Gates are i, o, f and the candidate of the cell; peepholes are i, o, f."""
    loop = block.loop

    def add(unit: _Unit) -> None:
        for gate in (0, 2, 3):
            seen = None if gate == 3 else unit.given("peepholes", gate)
            total = unit[gate] + unit.of_inputs(gate)
            total = total if seen is None else total + seen * unit.of(loop.cell)
            unit[gate] = unit.clipped(total)

    def activate(unit: _Unit) -> None:
        for gate, function in ((0, 0), (2, 0), (3, 1)):
            unit[gate] = unit.activated(function, unit[gate])

    def remember(unit: _Unit) -> None:
        kept = loop.number(1.0) - unit[0] if loop.layer.coupled else unit[2]
        # Its own old value is what an ended sequence keeps.
        value = kept * unit.of(loop.cell) + unit[0] * unit[3]
        active = loop.active(block.row, block.time)
        if active is not None:
            value = tirx.Select(active, value, unit.of(loop.cell))
        loop.cell[block.row, unit.index] = value

    def look(unit: _Unit) -> None:
        seen = unit.given("peepholes", 1)
        total = unit[1] + unit.of_inputs(1)
        total = total if seen is None else total + seen * unit.of(loop.cell)
        unit[1] = unit.clipped(total)

    def give(unit: _Unit) -> None:
        unit[1] = unit.activated(0, unit[1])
        unit[3] = unit.activated(2, unit.of(loop.cell))

    def join(unit: _Unit) -> None:
        unit.put(loop.next, unit[1] * unit[3])

    for step in (add, activate, remember, look, give, join):
        block.each(step)


_CELLS: dict[RecurrentKind, Callable[[_Block], None]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
