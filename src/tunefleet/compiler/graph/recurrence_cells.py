"""What a recurrent layer computes in each step, whoever loops over steps, rows and units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.graph.loops import sum_type
from tunefleet.compiler.graph.recurrence import Layer, Phase, RecurrentKind
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


class LayerSteps:
    """What one thread sees of a layer: a direction, rows of the batch from `first` on, and their
    state before and after a step, indexed by row and unit.

    `given` are buffers, named as for `recurrence_loop.call_layer`.
    """

    #: Made when a thread starts; a layer without a cell, or without a second phase, has none.
    direction: Any
    first: Any
    state: Any
    next: Any
    cell: Any = None
    reset: Any = None

    def __init__(
        self, layer: Layer, dtype: str, given: Mapping[str, Any], outputs: list[Any]
    ) -> None:
        self.layer = layer
        self.given = given
        self.dtype = dtype
        self.sum_type = sum_type(dtype)
        self.outputs = outputs

    def number(self, value: float) -> Any:
        return tirx.const(value, self.sum_type)

    def wide(self, value: Any) -> Any:
        """A number that was given, in the type of sums."""
        return value if self.dtype == self.sum_type else value.astype(self.sum_type)

    def time(self, step: Any) -> Any:
        """The place of a step in the sequence."""
        backward, last = self.layer.backward, self.layer.steps - 1
        if all(backward):
            return last - step
        if not any(backward):
            return step
        return tirx.Select(self.direction == backward.index(True), last - step, step)

    def active(self, row: int, time: Any) -> Any:
        """Whether a sequence still runs, None where all do to the end."""
        lengths = self.given.get("lengths")
        return None if lengths is None else time < lengths[self.first + row]

    def give_out(self, row: int, unit: Any, time: Any) -> None:
        """Writes what a step computed of a unit. A sequence that has ended gives zeros."""
        value, active = self.next[row, unit], self.active(row, time)
        given_out = value if active is None else tirx.Select(active, value, self.number(0))
        place = (time, self.direction, self.first + row, unit)
        self.outputs[0][place] = given_out.astype(self.dtype)


@dataclass(frozen=True, slots=True)
class UnitBlock(ABC):
    """The gates of a few units of one row, in registers: `sums` is indexed by row, gate and unit. A
    step of it is a loop over the units."""

    loop: LayerSteps
    phase: Phase
    block: Any
    time: Any
    row: int
    sums: Any

    @abstractmethod
    def each(self, step: Callable[[Unit], None]) -> None:
        """A step for each of the units."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One hidden unit of a block, and what a cell asks of it.

    An activation takes a gate that is stored: its argument stands in it several times.
    """

    block: UnitBlock
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


def _rnn(block: UnitBlock) -> None:
    def add(unit: Unit) -> None:
        unit[0] = unit.clipped(unit[0] + unit.of_inputs(0))

    def activate(unit: Unit) -> None:
        unit.put(block.loop.next, unit.activated(0, unit[0]))

    block.each(add)
    block.each(activate)


def _gru(block: UnitBlock) -> None:
    """Gates are z, r and the candidate, which a second phase computes unless the reset is applied
    to what the state gives to it."""
    loop = block.loop
    has_candidate = 2 in block.phase.gates

    def add(unit: Unit) -> None:
        for gate in (0, 1):
            unit[gate] = unit.clipped(unit[gate] + unit.of_inputs(gate))

    def activate(unit: Unit) -> None:
        for gate in (0, 1):
            unit[gate] = unit.activated(0, unit[gate])

    def reset(unit: Unit) -> None:
        loop.reset[block.row, unit.index] = unit[1] * unit.of(loop.state)
        # Kept until the second phase.
        loop.next[block.row, unit.index] = unit[0]

    def candidate(unit: Unit) -> None:
        of_state = unit[2]
        if loop.layer.resets_product:
            bias = unit.given("bias")
            of_state = unit[1] * (of_state if bias is None else of_state + bias)
        unit[2] = unit.clipped(of_state + unit.of_inputs(2))

    def activate_candidate(unit: Unit) -> None:
        unit[2] = unit.activated(1, unit[2])

    def mix(unit: Unit) -> None:
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


def _lstm(block: UnitBlock) -> None:
    """Gates are i, o, f and the candidate of the cell; peepholes are i, o, f."""
    loop = block.loop

    def add(unit: Unit) -> None:
        for gate in (0, 2, 3):
            seen = None if gate == 3 else unit.given("peepholes", gate)
            total = unit[gate] + unit.of_inputs(gate)
            total = total if seen is None else total + seen * unit.of(loop.cell)
            unit[gate] = unit.clipped(total)

    def activate(unit: Unit) -> None:
        for gate, function in ((0, 0), (2, 0), (3, 1)):
            unit[gate] = unit.activated(function, unit[gate])

    def remember(unit: Unit) -> None:
        kept = loop.number(1.0) - unit[0] if loop.layer.coupled else unit[2]
        # Its own old value is what an ended sequence keeps.
        value = kept * unit.of(loop.cell) + unit[0] * unit[3]
        active = loop.active(block.row, block.time)
        if active is not None:
            value = tirx.Select(active, value, unit.of(loop.cell))
        loop.cell[block.row, unit.index] = value

    def look(unit: Unit) -> None:
        seen = unit.given("peepholes", 1)
        total = unit[1] + unit.of_inputs(1)
        total = total if seen is None else total + seen * unit.of(loop.cell)
        unit[1] = unit.clipped(total)

    def give(unit: Unit) -> None:
        unit[1] = unit.activated(0, unit[1])
        unit[3] = unit.activated(2, unit.of(loop.cell))

    def join(unit: Unit) -> None:
        unit.put(loop.next, unit[1] * unit[3])

    for step in (add, activate, remember, look, give, join):
        block.each(step)


CELLS: dict[RecurrentKind, Callable[[UnitBlock], None]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
