"""AMX: products of tiles whose sums stay in tile registers over the whole depth.

A processor with AMX has eight tile registers of 16 rows of 64 bytes. One instruction adds the
product of a data tile (rows, depth) and a packed weight tile (depth, lanes) to a tile of sums
(rows, lanes). A register tile consists of `outer` by `columns` of them, so that each loaded tile
serves several products. Sums have no address during computation: the schedule's buffer for them is
never accessed, and three intrinsics work on the registers: `ZERO`, a step of the depth, `STORE`.

Registers are used only between two calls in each thread (`Tiles.bracket`). The first configures
their shapes, in 45 ns; the second releases them, as the operating system requires. Permission is
requested from the kernel once, when a library with such code is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.space.intrinsics._base import Intrinsic
from tunefleet.compiler.space.intrinsics._functions import Argument, coded, described, first
from tunefleet.compiler.space.intrinsics.amx_code import REGISTERS, text_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, stored, widened
from tunefleet.core.forms import INTRINSIC_PREFIX

tvm = load_tvm()
tirx = tvm.tirx

MOST_ROWS = MOST_LANES = 16
_ROW_BYTES = 64
#: Cycles from a product's start to the next one for the same sums.
_LATENCY = 52
#: Bytes of adjacent weights per lane.
_WORD = 4

ZERO, STORE = ".zero", ".store"
#: Of the names of functions in LLVM's language.
_FUNCTION = "tunefleet."


@dataclass(frozen=True, slots=True)
class TileIntrinsic(Intrinsic):
    """C[rows, lanes] += A[rows, depth] * B[depth, lanes]; the extents are maxima."""

    instruction: str = ""

    @property
    def word(self) -> int:
        """Adjacent depth elements per lane."""
        return _WORD // _bytes(self.weight)


def _bytes(dtype: str) -> int:
    return 2 if dtype == BFLOAT16 else 1


def _intrinsic(data: str, weight: str, sums: str, feature: str, instruction: str) -> TileIntrinsic:
    return TileIntrinsic(
        f"amx.{data}", "x86_64", frozenset({"amx-tile", feature, "avx512f"}),
        MOST_LANES, _ROW_BYTES // _bytes(data), data, weight, sums, instruction=instruction,
    )  # fmt: skip


INTRINSICS = (
    _intrinsic("uint8", "int8", "int32", "amx-int8", "tdpbusd"),
    _intrinsic("int8", "int8", "int32", "amx-int8", "tdpbssd"),
    _intrinsic(BFLOAT16, BFLOAT16, "float32", "amx-bf16", "tdpbf16ps"),
)
_OF_DATA = {intrinsic.data: intrinsic for intrinsic in INTRINSICS}
_N = "([1-9][0-9]{0,3})"
_NAME = re.compile(
    rf"amx\.(uint8|int8|bfloat16)\.{_N}x{_N}x{_N}\.{_N}x{_N}"
    rf"(?:\.step{_N})?(?:\.apart{_N})?(?:\.window{_N})?({re.escape(ZERO)}|{re.escape(STORE)})?"
)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A register tile: `outer` by `columns` tiles of (rows, lanes) sums, `depth` elements per step.

    Rows are `step` apart in the data. Outer tiles are on the same axis, or, with `apart`, on the
    previous axis at that distance. With few channels, a step covers the channels of a `window` of
    adjacent rows. Raises ValueError if it exceeds the registers.
    """

    data: str
    outer: int
    rows: int
    columns: int
    lanes: int
    depth: int
    step: int = 1
    apart: int = 0
    window: int = 1

    def __post_init__(self) -> None:
        if not self.fit(self.outer, self.columns):
            raise ValueError(f"{self} needs more than {REGISTERS} tile registers")

    @staticmethod
    def fit(outer: int, columns: int) -> bool:
        """Whether registers suffice: all tiles of the side with fewer are kept, those of the other
        side are loaded one by one."""
        return outer * columns + min(outer, columns) + 1 <= REGISTERS

    @property
    def intrinsic(self) -> TileIntrinsic:
        return _OF_DATA[self.data]

    @property
    def name(self) -> str:
        """Such as `amx.uint8.28x32x64.2x2`: sums and depth of a step, then tiles of both sides."""
        step = f".step{self.step}" if self.step > 1 else ""
        apart = f".apart{self.apart}" if self.apart else ""
        window = f".window{self.window}" if self.window > 1 else ""
        sizes = f"{self.outer * self.rows}x{self.columns * self.lanes}x{self.depth}"
        return f"amx.{self.data}.{sizes}.{self.outer}x{self.columns}{step}{apart}{window}"

    @property
    def trace_name(self) -> str:
        return INTRINSIC_PREFIX + self.name

    @property
    def bracket(self) -> tuple[str, str]:
        """The functions that a thread calls before and after its part."""
        return self.function("begin"), self.function("end")

    @property
    def sums(self) -> int:
        return self.outer * self.rows * self.columns * self.lanes

    @property
    def words(self) -> int:
        """Words of four bytes in a row of a data tile."""
        return self.window * self.depth // self.intrinsic.word

    def rows_of(self, dimension: int) -> int:
        """The number of rows in a dimension of the data, counted from its last (-1)."""
        if dimension == -2:
            return self.rows if self.apart else self.outer * self.rows
        return self.outer if dimension == -3 and self.apart else 1

    @property
    def cycles(self) -> float:
        """Estimated cycles of a step: one per row of a product, at least 8, and the next product
        for the same sums waits for its latency. Loading a row takes one, less from the L1 cache."""
        products = self.outer * self.columns * max(self.rows, MOST_ROWS // 2)
        return max(products, self.outer * self.rows + self.columns * MOST_ROWS, _LATENCY)

    def function(self, what: str) -> str:
        return f"{_FUNCTION}{self.name}.{what}"

    def code(self, part: str) -> tuple[Any, Any]:
        """Description and implementation of a step (""), of `ZERO` or of `STORE`."""
        return {"": self._of_step, ZERO: self._of_zero, STORE: self._of_store}[part]()

    @property
    def _row_shape(self) -> tuple[int, ...]:
        return (self.outer, self.rows) if self.apart else (self.outer * self.rows,)

    @property
    def _steps(self) -> tuple[int, ...]:
        return (self.apart, self.step) if self.apart else (self.step,)

    def _of_step(self) -> tuple[Any, Any]:
        data, weight, sums = self.data, self.intrinsic.weight, self.intrinsic.accumulator
        word, lanes, wide = self.intrinsic.word, self.lanes, self.columns * self.lanes
        taps = (self.window,) if self.window > 1 else ()
        *outer, row = [
            (n - 1) * step + 1 for n, step in zip(self._row_shape, self._steps, strict=True)
        ]
        own = Argument("A", (*outer, row + self.window - 1, self.depth), stored(data))
        packed = (self.columns, *taps, self.depth // word, lanes, word)
        arguments = (
            own,
            Argument("B", packed, stored(weight)),
            Argument("C", (*self._row_shape, wide), sums),
        )

        def summed(a: Any, b: Any, c: Any, index: Sequence[Any]) -> Any:
            *place, column = index[: len(self._row_shape) + 1]
            *tap, k = index[len(place) + 1 :]
            at = [number * step for number, step in zip(place, self._steps, strict=True)]
            at[-1] = sum(tap, at[-1])
            left = widened(a[(*at, k)], data, sums)
            right = b[(column // lanes, *tap, k // word, column % lanes, k % word)]
            return c[(*place, column)] + left * widened(right, weight, sums)

        def called(a: Any, b: Any, c: Any) -> Any:
            return _call(self.function("step"), first(a), *self._strides(a), first(b))

        extents = (*self._row_shape, wide, *taps, self.depth)
        reductions = 1 + len(taps)
        return (
            described(arguments, (2, 0, 1), extents, summed, reductions),
            coded(arguments, (2, 0, 1), called),
        )

    def _of_zero(self) -> tuple[Any, Any]:
        sums = self.intrinsic.accumulator
        result = Argument("C", (*self._row_shape, self.columns * self.lanes), sums)
        return (
            described((result,), (), result.shape, lambda c, index: tirx.const(0, sums)),
            coded((result,), (), lambda c: _call(self.function("zero"))),
        )

    def _of_store(self) -> tuple[Any, Any]:
        shape = (*self._row_shape, self.columns * self.lanes)
        sums = self.intrinsic.accumulator
        arguments = (Argument("C", shape, sums), Argument("D", shape, sums))

        def called(c: Any, d: Any) -> Any:
            return _call(self.function("store"), first(d), *self._strides(d, stepped=False))

        return (
            described(arguments, (0,), shape, lambda c, d, index: c[tuple(index)]),
            coded(arguments, (0,), called),
        )

    def _strides(self, buffer: Any, *, stepped: bool = True) -> tuple[Any, Any]:
        """Strides in elements between rows, and between outer tiles."""
        *outer, row, _ = buffer.strides
        row *= self.step if stepped else 1
        tile = outer[0] * (self.apart if stepped else 1) if outer else row * self.rows
        return tirx.Cast("int64", row), tirx.Cast("int64", tile)

    def llvm(self) -> str:
        """LLVM IR of the functions that the implementations and the bracket call."""
        return text_of(self)


def tiles_named(name: str) -> tuple[Tiles, str] | None:
    """The register tile and the part of an intrinsic's name in a trace, without the prefix; None
    for other names, and for tiles that no processor supports."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    data, *numbers, part = match.groups()
    rows, wide, depth, outer, columns, step, apart, window = (int(n or 0) for n in numbers)
    if rows % outer or wide % columns or not Tiles.fit(outer, columns):
        return None
    sizes = (outer, rows // outer, columns, wide // columns, depth)
    return Tiles(data, *sizes, max(step, 1), apart, max(window, 1)), part or ""


def tiles_called(function: str) -> Tiles | None:
    """The register tile of a function name in its code."""
    named = tiles_named(function.removeprefix(_FUNCTION).rpartition(".")[0])
    return named[0] if named and function.startswith(_FUNCTION) else None


def _call(function: str, *arguments: Any) -> Any:
    return tirx.call_extern("int32", function, *arguments)
