"""The steps of a recurrent layer as kernels of a GPU.

Each step reads the whole state that the one before has left, so there is a kernel for each step,
and one for each phase of it. A thread computes a hidden unit; those of a block that differ along y
share the sum over the state, which the first of them finishes. A state is written beside the one
that is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.graph.byte_state import point_of, quantised, scale_of
from tunefleet.compiler.graph.kernels import WARP, each, kernel, shared, workspace
from tunefleet.compiler.graph.loops import T, allocated
from tunefleet.compiler.graph.recurrence_cells import CELLS, LayerSteps, Unit, UnitBlock
from tunefleet.compiler.toolchain import load_tvm

tirx = load_tvm().tirx

#: Threads that share the sum of a unit, at most. Few units are computed at once, and each waits for
#: memory.
_SLICES = 8


@dataclass(frozen=True, slots=True)
class _OfRows:
    """What `LayerSteps` knows as [rows, units], within a buffer [..., directions, batch, units]."""

    buffer: Any
    before: tuple[Any, ...]

    def __getitem__(self, place: tuple[int, Any]) -> Any:
        return self.buffer[self._place(*place)]

    def __setitem__(self, place: tuple[int, Any], value: Any) -> None:
        self.buffer[self._place(*place)] = value

    def _place(self, row: int, unit: Any) -> tuple[Any, ...]:
        *others, first = self.before
        return (*others, first + row, unit)


class Kernels(LayerSteps):
    """Writes the program."""

    def write_within(self, most: int) -> None:
        """With `most` threads in a block, one warp at least."""
        layer, self._most = self.layer, most
        self.slices = min(_SLICES, most // WARP)
        shape = [layer.directions, layer.batch, layer.hidden]
        self._states = workspace("states", [2, *shape], self.sum_type)
        is_lstm, has_reset = layer.operator == "LSTM", len(layer.phases) > 1
        self._cells = workspace("cells", shape, self.sum_type) if is_lstm else None
        self._resets = workspace("resets", shape, self.sum_type) if has_reset else None
        self._start()
        with T.serial(0, layer.steps) as step:
            for index in range(len(layer.phases)):
                self._phase(index, step)
        self._store_last()

    def _start(self) -> None:
        layer = self.layer
        with each(layer.directions * layer.batch * layer.hidden, self._most) as number:
            place = self._place(number)
            for name, buffer, before in (("hidden", self._states, (0,)), ("cell", self._cells, ())):
                if buffer is not None:
                    source = self.given.get(name)
                    value = self.number(0.0) if source is None else self.wide(source[place])
                    buffer[(*before, *place)] = value

    def _store_last(self) -> None:
        layer = self.layer
        with each(layer.directions * layer.batch * layer.hidden, self._most) as number:
            place = self._place(number)
            _, *last = self.outputs
            last[0][place] = self._states[(layer.steps % 2, *place)].astype(self.dtype)
            if self._cells is not None:
                last[1][place] = self._cells[place].astype(self.dtype)

    def _place(self, number: Any) -> tuple[Any, Any, Any]:
        """Direction, row and unit."""
        layer = self.layer
        row = number // layer.hidden
        return row // layer.batch, row % layer.batch, number % layer.hidden

    def _phase(self, index: int, step: Any) -> None:
        layer, phase = self.layer, self.layer.phases[index]
        tiles, groups = -(-layer.hidden // WARP), layer.batch // layer.rows
        blocks = layer.directions * groups * tiles
        with kernel(blocks, WARP, self.slices) as (block, lane, part):
            together = block // tiles
            self.direction, self.first = together // groups, together % groups * layer.rows
            self.state, self.next = (self._of_rows(self._states, n % 2) for n in (step, step + 1))
            self.cell, self.reset = map(self._of_rows, (self._cells, self._resets))
            unit = block % tiles * WARP + lane
            form = _ByteSums if layer.in_bytes else _Sums
            sums = form(self, index, unit, lane, part)
            sums.share()
            with T.If(tirx.all(part == 0, unit < layer.hidden)), T.Then():
                totals = allocated([layer.rows, len(phase.gates)], self.sum_type)
                sums.finish(totals)
                for row in range(layer.rows):
                    time = self.time(step)
                    of_row = _OfUnit(
                        self, phase, unit // phase.units, time, row, _Totals(totals),
                        unit % phase.units,
                    )  # fmt: skip
                    CELLS[layer.operator](of_row)
                    if index == len(layer.phases) - 1:
                        self.give_out(row, unit, time)

    def _of_rows(self, buffer: Any, *before: Any) -> Any:
        return None if buffer is None else _OfRows(buffer, (*before, self.direction, self.first))


@dataclass(frozen=True, slots=True)
class _Totals:
    """The sums of one unit, whichever it is."""

    buffer: Any

    def __getitem__(self, place: tuple[int, int, Any]) -> Any:
        return self.buffer[place[:2]]

    def __setitem__(self, place: tuple[int, int, Any], value: Any) -> None:
        self.buffer[place[:2]] = value


@dataclass(frozen=True)
class _OfUnit(UnitBlock):
    """A step is one unit: that of the thread."""

    lane: Any

    def each(self, step: Callable[[Unit], None]) -> None:
        step(Unit(self, self.lane))


class _Sums:
    """The products of a phase, summed over the state: a part of it by each thread of a unit."""

    def __init__(self, steps: Kernels, index: int, unit: Any, lane: Any, part: Any) -> None:
        self._steps, self._lane, self._part = steps, lane, part
        self._phase = steps.layer.phases[index]
        self._source = steps.reset if index else steps.state
        self._matrix = steps.given[f"matrix{index}"]
        self._unit = unit
        self._rows, self._gates = range(steps.layer.rows), range(len(self._phase.gates))
        self._each = [(row, gate) for row in self._rows for gate in self._gates]

    def share(self) -> None:
        """What each thread sums up, for the others to read."""
        self._add_up(self._steps.sum_type, len(self._each), self._add)

    def finish(self, totals: Any) -> None:
        for number, place in enumerate(self._each):
            totals[place] = self._total(number)

    def _add(self, sums: Any, k: Any) -> None:
        place = (self._steps.direction, self._block)
        weights = [
            self._steps.wide(self._matrix[(*place, k, gate, self._of_block)])
            for gate in self._gates
        ]
        for number, (row, gate) in enumerate(self._each):
            sums[number] = sums[number] + self._source[row, k] * weights[gate]

    @property
    def _block(self) -> Any:
        return self._unit // self._phase.units

    @property
    def _of_block(self) -> Any:
        """The place of the unit in its block."""
        return self._unit % self._phase.units

    def _add_up(self, dtype: str, count: int, add: Callable[[Any, Any], None]) -> None:
        """`count` sums of what `add` adds for each element of the state."""
        hidden = self._steps.layer.hidden
        self._partial = shared([self._steps.slices, count, WARP], dtype)
        sums = allocated([count], dtype)
        for number in range(count):
            sums[number] = tirx.const(0, dtype)
        steps = -(-hidden // self._steps.slices)
        with T.serial(0, steps) as i:
            k = self._part * steps + i
            with T.If(tirx.all(self._unit < hidden, k < hidden)), T.Then():
                add(sums, k)
        for number in range(count):
            self._partial[self._part, number, self._lane] = sums[number]

    def _total(self, number: int) -> Any:
        parts = [self._partial[part, number, self._lane] for part in range(self._steps.slices)]
        return sum(parts[1:], parts[0])


class _ByteSums(_Sums):
    """Of a state that is quantised by its values, as `byte_state.ByteState` does it."""

    def share(self) -> None:
        rows = len(self._rows)
        self._scale, self._zero = (allocated([rows], dtype) for dtype in ("float32", "int32"))
        self._quantise()
        # The sum of a row's numbers stands behind the sums of products.
        count = len(self._each) + (rows if "points" in self._steps.given else 0)
        self._add_up("int32", count, self._add)

    def _quantise(self) -> None:
        """The scale and zero point of each row. Threads of one part of the sum look at the whole
        state: to do so in every block is quicker than a kernel before."""
        hidden = self._steps.layer.hidden
        functions = (tirx.min, tirx.max)
        extremes = shared([self._steps.slices, 2 * len(self._rows), WARP], "float32")
        own = allocated([2], "float32")
        for row in self._rows:
            for which in range(2):
                own[which] = tirx.const(0, "float32")
            with T.serial(0, -(-hidden // WARP)) as i:
                k = i * WARP + self._lane
                with T.If(k < hidden), T.Then():
                    for which, of_two in enumerate(functions):
                        own[which] = of_two(own[which], self._source[row, k])
            for which in range(2):
                extremes[self._part, 2 * row + which, self._lane] = own[which]
        for row in self._rows:
            for which in range(2):
                own[which] = tirx.const(0, "float32")
            with T.serial(0, WARP) as lane:
                for which, of_two in enumerate(functions):
                    seen = extremes[self._part, 2 * row + which, lane]
                    own[which] = of_two(own[which], seen)
            low, high = own[0], own[1]
            self._scale[row] = scale_of(low, high)
            self._zero[row] = point_of(low, self._scale[row])

    def _add(self, sums: Any, k: Any) -> None:
        place = (self._steps.direction, self._block)
        numbers = allocated([len(self._rows)], "int32")
        for row in self._rows:
            number = quantised(self._source[row, k], self._scale[row], self._zero[row])
            numbers[row] = number.astype("int32")
        for which, (row, gate) in enumerate(self._each):
            weight = self._matrix[(*place, gate, self._of_block, k)].astype("int32")
            sums[which] = sums[which] + numbers[row] * weight
        if "points" in self._steps.given:
            for row in self._rows:
                which = len(self._each) + row
                sums[which] = sums[which] + numbers[row]

    def finish(self, totals: Any) -> None:
        given = self._steps.given
        for number, (row, gate) in enumerate(self._each):
            each = (self._steps.direction, self._block, gate, self._of_block)
            total = self._total(number) - self._zero[row] * given["totals"][each]
            if "points" in given:
                total -= self._total(len(self._each) + row) * given["points"][each]
            totals[row, gate] = total.astype("float32") * (self._scale[row] * given["scales"][each])
