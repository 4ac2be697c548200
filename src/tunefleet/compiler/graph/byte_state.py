"""The state of a recurrent layer as 8-bit integers, quantised by its values in every step."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tunefleet.compiler.graph.loops import T, allocated
from tunefleet.compiler.graph.recurrence import BYTES, Layer, Phase
from tunefleet.compiler.space.intrinsics import VectorIntrinsic
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx

#: The largest number of 8 bits.
_MOST = 255.0


class ByteState:
    """The state as 8-bit integers, and its products with weights that are such. Each row has the
    scale and the zero point that its numbers ask for, in every step. ONNX Runtime has one for as
    many rows as a thread of its own takes."""

    #: As 16 bits they are widened once in a step, not for every unit.
    _dtype = "int16"

    def __init__(self, layer: Layer, state: Any, given: Mapping[str, Any], direction: Any) -> None:
        """`state` is a buffer [rows, padded]; `given` as for `recurrence_loop.call_layer`."""
        self._layer, self._state, self._given = layer, state, given
        self._direction = direction
        #: Units of a block, which fill a vector and of which the padded state has a multiple.
        self._lanes = layer.phases[0].units
        rows, depth = layer.rows, layer.depth
        self._numbers = allocated([rows, depth], self._dtype)
        self._scale, self._zero, self._sum = (
            allocated([rows], dtype) for dtype in ("float32", "int32", "int32")
        )
        with T.grid(rows, depth) as place:
            self._numbers[place] = tirx.const(0, self._dtype)

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
                self._numbers[row, part * lanes + lane] = number.astype(self._dtype)
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
        products = self._products(phase, block)
        for row in range(self._layer.rows):
            for gate in gates:
                with T.vectorized(0, phase.units) as unit:
                    each = (*place, gate, unit)
                    total = (
                        products[row, gate * phase.units + unit]
                        - self._zero[row] * given["totals"][each]
                    )
                    if "points" in given:
                        total -= self._sum[row] * given["points"][each]
                    scale = self._scale[row] * given["scales"][each]
                    sums[row, gate, unit] = total.astype("float32") * scale

    def _products(self, phase: Phase, block: Any) -> Any:
        """The sums of a block [rows, gates * units] int32."""
        columns = len(phase.gates) * phase.units
        products = allocated([self._layer.rows, columns], "int32")
        # One loop, too long to be unrolled, of one product: where two share widened numbers, LLVM
        # has no instruction for them that multiplies and adds pairs.
        with T.serial(0, self._layer.rows * columns) as which:
            column, row = which % columns, which // columns
            weights = (self._direction, block, column // phase.units, column % phase.units)
            parts = [
                self._numbers[row, part].astype(f"int32x{BYTES}")
                * self._given["matrix0"][(*weights, part)].astype(f"int32x{BYTES}")
                for part in (_run(n, BYTES) for n in range(self._layer.depth // BYTES))
            ]
            products[row, column] = _summed(functools.reduce(operator.add, parts))
        return products


class DotState(ByteState):
    """Multiplied by an instruction: the sums are the very same.

    The matrix is packed as it reads it, [directions, blocks, steps, gates * units * its depth].
    """

    _dtype = "uint8"

    def __init__(
        self,
        layer: Layer,
        state: Any,
        given: Mapping[str, Any],
        direction: Any,
        instruction: VectorIntrinsic,
    ) -> None:
        super().__init__(layer, state, given, direction)
        self._instruction = instruction

    def _products(self, phase: Phase, block: Any) -> Any:
        lanes, depth = self._instruction.lanes, self._instruction.depth
        rows, columns = self._layer.rows, len(phase.gates) * phase.units
        vectors, steps = columns // lanes, self._layer.depth // depth
        chains = self._chains(rows * vectors, steps)
        sums = allocated([chains, rows, columns], "int32")
        for chain in range(chains):
            for row in range(rows):
                for vector in range(vectors):
                    zeros = tirx.Broadcast(tirx.const(0, "int32"), lanes)
                    sums[chain, row, _run(vector, lanes)] = zeros
        with T.serial(0, steps // chains) as group:
            for chain in range(chains):
                step = group * chains + chain
                numbers = [self._numbers[row, _run(step, depth)] for row in range(rows)]
                for vector in range(vectors):
                    at = (self._direction, block, step, _run(vector, lanes * depth))
                    weights = self._given["matrix0"][at]
                    for row in range(rows):
                        sum_ = (chain, row, _run(vector, lanes))
                        sums[sum_] = self._instruction.update(
                            self._instruction, numbers[row], weights, sums[sum_]
                        )
        products = allocated([rows, columns], "int32")
        for row in range(rows):
            for vector in range(vectors):
                at = _run(vector, lanes)
                each = [sums[chain, row, at] for chain in range(chains)]
                products[row, at] = functools.reduce(operator.add, each)
        return products

    def _chains(self, sums: int, steps: int) -> int:
        """How many vectors hold a sum, a power of two: each addition to one waits for the last."""
        most = max(1, self._instruction.registers // 2 // sums)
        return math.gcd(1 << most.bit_length() - 1, steps)


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


def _run(number: Any, length: int) -> Any:
    """The indices of one of the runs of a length into which an axis is divided."""
    return tirx.Ramp(tirx.const(length, "int32") * number, tirx.const(1, "int32"), length)


def _summed(numbers: Any) -> Any:
    """LLVM makes instructions that multiply and add pairs of it, whatever the processor."""
    name = f"llvm.vector.reduce.add.v{BYTES}i32"
    return tirx.call_llvm_pure_intrin("int32", name, numbers)
