"""The loop over time of a recurrent layer, written in TIR."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tunefleet.compiler.graph.byte_state import ByteState, DotState
from tunefleet.compiler.graph.loops import (
    Instructed,
    Packing,
    T,
    Write,
    allocated,
    call_loops,
    parallel,
)
from tunefleet.compiler.graph.recurrence import Layer, Phase
from tunefleet.compiler.graph.recurrence_cells import CELLS, LayerSteps, Unit, UnitBlock
from tunefleet.compiler.graph.recurrence_kernels import Kernels
from tunefleet.compiler.space.intrinsics import VectorIntrinsic, dot_products
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

    def named(inputs: list[Any]) -> dict[str, Any]:
        return dict(zip(given, inputs, strict=True))

    def writing(instruction: VectorIntrinsic | None) -> Write:
        def write(inputs: list[Any], outputs: list[Any]) -> None:
            _Loop(layer, dtype, named(inputs), outputs).write(instruction)

        return write

    def kernels(inputs: list[Any], outputs: list[Any], most: int) -> None:
        Kernels(layer, dtype, named(inputs), outputs).write_within(most)

    instructed = []
    if layer.in_bytes:
        matrix = list(given).index("matrix0")
        instructed = [
            Instructed(each.features, matrix, _packing(layer, each), writing(each))
            for each in dot_products()
        ]
    name, inputs = layer.operator.lower(), list(given.values())
    return call_loops(builder, name, inputs, types, writing(None), kernels, instructed)


def _packing(layer: Layer, instruction: VectorIntrinsic) -> Packing:
    """The matrix of a layer in bytes as an instruction reads it: [directions, blocks, steps, gates
    * units * depth of the instruction]."""
    (phase,) = layer.phases
    shape = (layer.directions, layer.padded // phase.units, len(phase.gates), phase.units)
    steps, depth = layer.depth // instruction.depth, instruction.depth
    packed = (*shape[:2], steps, math.prod(shape[2:]) * depth)
    return Packing((*shape, steps, depth), (0, 1, 4, 2, 3, 5), packed)


class _Loop(LayerSteps):
    """Writes the program. Each thread has a direction, some rows of the batch, and their state;
    where there is but one of these and it is large, threads share its units in each step."""

    def write(self, instruction: VectorIntrinsic | None) -> None:
        """By an instruction where the layer is in bytes, which LLVM finds for None."""
        layer = self.layer
        groups = layer.batch // layer.rows
        together = layer.directions * groups
        self.shared = together == 1 and self._step_bytes() >= _SHARED_BYTES
        with parallel(together) as thread:
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
                of_state = (layer, self.state, self.given, self.direction)
                self.integers = (
                    DotState(*of_state, instruction) if instruction else ByteState(*of_state)
                )
            with T.serial(0, layer.steps) as step:
                time = self.time(step)
                if layer.in_bytes:
                    self.integers.take()
                for index in range(len(layer.phases)):
                    self._phase(index, time)
                self._finish(time)
            self._store_last()

    def _step_bytes(self) -> int:
        """Bytes of weights that one step reads."""
        gates = sum(len(phase.gates) for phase in self.layer.phases)
        bits = 8 if self.layer.in_bytes else int(tvm.DataType(self.dtype).bits)
        return self.layer.hidden * self.layer.padded * gates * bits // 8

    def _buffer(self, shape: list[int]) -> Any:
        return allocated(shape, self.sum_type)

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
                CELLS[layer.operator](_Vectors(self, phase, block, time, row, sums))

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
        """What was computed becomes the state, and is given out. That of a sequence that has ended
        is as it was."""
        for row in range(self.layer.rows):
            with T.serial(0, self.layer.hidden) as unit:
                self.give_out(row, unit, time)
                self.state[row, unit] = self.next[row, unit]

    def _store_last(self) -> None:
        for buffer, output in zip((self.state, self.cell), self.outputs[1:], strict=False):
            for row in range(self.layer.rows):
                with T.serial(0, self.layer.hidden) as unit:
                    value = buffer[row, unit].astype(self.dtype)
                    output[self.direction, self.first + row, unit] = value


class _Vectors(UnitBlock):
    """A step is a vector of the units."""

    def each(self, step: Callable[[Unit], None]) -> None:
        with T.vectorized(0, self.phase.units) as unit:
            step(Unit(self, unit))
