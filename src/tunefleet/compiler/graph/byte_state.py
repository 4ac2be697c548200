"""The state of a recurrent layer as 8-bit integers, quantised by its values in every step."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tunefleet.compiler.graph.loops import T, allocated
from tunefleet.compiler.graph.recurrence import BYTES, Layer, Phase
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx

#: The largest number of 8 bits.
_MOST = 255.0


class ByteState:
    """The state as 8-bit integers, and its products with weights that are such. Each row has the
    scale and the zero point that its numbers ask for, in every step. ONNX Runtime has one for as
    many rows as a thread of its own takes."""

    def __init__(self, layer: Layer, state: Any, given: Mapping[str, Any], direction: Any) -> None:
        """`state` is a buffer [rows, padded]; `given` as for `recurrence_loop.call_layer`."""
        self._layer, self._state, self._given = layer, state, given
        self._direction = direction
        #: Units of a block, which fill a vector and of which the padded state has a multiple.
        self._lanes = layer.phases[0].units
        rows, depth = layer.rows, layer.depth
        # As 16 bits they are widened once in a step, not for every unit.
        self._numbers = allocated([rows, depth], "int16")
        self._scale, self._zero, self._sum = (
            allocated([rows], dtype) for dtype in ("float32", "int32", "int32")
        )
        with T.grid(rows, depth) as place:
            self._numbers[place] = tirx.const(0, "int16")

    def take(self) -> None:
        """The state as it is now."""
        state, lanes, hidden = self._state, self._lanes, self._layer.hidden
        for row in range(self._layer.rows):
            low, high = (self._extreme(row, of_two) for of_two in (tirx.min, tirx.max))
            self._scale[row] = scale_of(low, high)
            scale = self._scale[row]
            self._zero[row] = point_of(low, scale)
            zero = self._zero[row]
            with T.serial(0, self._layer.padded // lanes) as part, T.vectorized(0, lanes) as lane:
                number = quantised(state[row, part * lanes + lane], scale, zero)
                self._numbers[row, part * lanes + lane] = number.astype("int16")
            if "points" in self._given:
                self._sum[row] = tirx.const(0, "int32")
                with T.serial(0, hidden) as k:
                    self._sum[row] = self._sum[row] + self._numbers[row, k].astype("int32")

    def _extreme(self, row: int, of_two: Callable[[Any, Any], Any]) -> Any:
        """The least or the largest of a state and zero: so are units that fill the last block."""
        lanes = self._lanes
        found = allocated([lanes], "float32")
        with T.vectorized(0, lanes) as lane:
            found[lane] = _float(0.0)
        with T.serial(0, self._layer.padded // lanes) as part, T.vectorized(0, lanes) as lane:
            found[lane] = of_two(found[lane], self._state[row, part * lanes + lane])
        with T.serial(1, lanes) as lane:
            found[0] = of_two(found[0], found[lane])
        return found[0]

    def multiply(self, phase: Phase, block: Any, sums: Any) -> None:
        """Of (n - zero) * (w - point), summed over the state, only n * w is."""
        given, gates = self._given, range(len(phase.gates))
        place = (self._direction, block)
        products = allocated([self._layer.rows, len(phase.gates), phase.units], "int32")
        # One loop, too long to be unrolled, of one product: where two share widened numbers, LLVM
        # has no instruction for them that multiplies and adds pairs.
        with T.serial(0, self._layer.rows * len(phase.gates) * phase.units) as which:
            unit, group = which % phase.units, which // phase.units
            gate, row = group % len(phase.gates), group // len(phase.gates)
            parts = [
                self._numbers[row, part].astype(f"int32x{BYTES}")
                * given["matrix0"][(*place, gate, unit, part)].astype(f"int32x{BYTES}")
                for part in map(_bytes, range(self._layer.depth // BYTES))
            ]
            products[row, gate, unit] = _summed(functools.reduce(operator.add, parts))
        for row in range(self._layer.rows):
            for gate in gates:
                with T.vectorized(0, phase.units) as unit:
                    each = (*place, gate, unit)
                    total = products[row, gate, unit] - self._zero[row] * given["totals"][each]
                    if "points" in given:
                        total -= self._sum[row] * given["points"][each]
                    scale = self._scale[row] * given["scales"][each]
                    sums[row, gate, unit] = total.astype("float32") * scale


def scale_of(low: Any, high: Any) -> Any:
    """The scale of a state, of the least and the largest of its values and zero."""
    return tirx.Select(high == low, _float(1.0), (high - low) / _float(_MOST))


def point_of(low: Any, scale: Any) -> Any:
    """Its zero point, int32."""
    return tirx.nearbyint(_within((_float(0.0) - low) / scale)).astype("int32")


def quantised(value: Any, scale: Any, point: Any) -> Any:
    """A value as a whole number of 8 bits, still a float."""
    return _within(tirx.nearbyint(value / scale) + point.astype("float32"))


def _within(value: Any) -> Any:
    return tirx.min(tirx.max(value, _float(0.0)), _float(_MOST))


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


def _bytes(part: int) -> Any:
    return tirx.Ramp(tirx.const(part * BYTES, "int32"), tirx.const(1, "int32"), BYTES)


def _summed(numbers: Any) -> Any:
    """LLVM makes instructions that multiply and add pairs of it, whatever the processor."""
    name = f"llvm.vector.reduce.add.v{BYTES}i32"
    return tirx.call_llvm_pure_intrin("int32", name, numbers)
