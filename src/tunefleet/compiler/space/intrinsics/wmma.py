"""WMMA: products of tiles by the tensor cores of NVIDIA GPUs, a warp at a time.

The 32 threads of a warp jointly hold tiles of data, weights and sums, as fragments. The layout of a
fragment in registers depends on the architecture; it is loaded from shared memory, multiplied and
stored as a whole. A product therefore consists of five intrinsics: `FILL` with zeros, `LOAD_DATA`,
`LOAD_WEIGHT`, the product itself and `STORE`.

Fragments and their rows are aligned to 16 bytes in shared memory. CUDA's C++ guide requires 32 for
the start of a fragment; but no load instruction takes more than 16 bytes per thread, and NVIDIA's
own example of 8-bit products steps by 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tunefleet.compiler.space.intrinsics._functions import Argument, coded, described
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.forms import INTRINSIC_PREFIX
from tunefleet.core.target import TENSOR_CORES

tvm = load_tvm()
tirx = tvm.tirx

WARP = 32
DATA_SCOPE, WEIGHT_SCOPE, SUMS_SCOPE = "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"
#: The scopes from which fragments are loaded and to which they are stored. They differ, because TVM
#: merges buffers of one scope with disjoint lifetimes, and then assumes one pointer type for both.
FETCH_SCOPE, RESULT_SCOPE = "shared", "shared.dyn"
#: The alignment in bytes of a fragment, and of its rows in shared memory.
ALIGNED = 16

_SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int8": "s8", "int32": "s32"}
_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class WarpProduct:
    """C[rows, columns] += A[rows, depth] * B[depth, columns], or B[columns, depth] where weights
    are `transposed`."""

    rows: int
    columns: int
    depth: int
    data: str
    accumulator: str
    transposed: bool

    @property
    def capability(self) -> tuple[int, int]:
        """The least compute capability of a GPU that has it."""
        return TENSOR_CORES[self.data]

    @property
    def weight(self) -> str:
        return self.data

    @property
    def shape(self) -> str:
        return f"{self.rows}x{self.columns}x{self.depth}"

    @property
    def name(self) -> str:
        """The name in TVM's scheme: `wmma_sync_16x16x16_f16f16f32_trans`."""
        return f"wmma_sync_{self.shape}_{_SHORT[self.data] * 2}{_SHORT[self.accumulator]}" + (
            "_trans" if self.transposed else ""
        )

    @property
    def trace_name(self) -> str:
        return INTRINSIC_PREFIX + self.name

    @property
    def fill(self) -> str:
        return f"{INTRINSIC_PREFIX}wmma_fill_{self.shape}_{_SHORT[self.accumulator]}"

    @property
    def load_data(self) -> str:
        return f"{INTRINSIC_PREFIX}wmma_load_{self.shape}_{_SHORT[self.data]}_a_{FETCH_SCOPE}"

    @property
    def load_weight(self) -> str:
        layout = "b_trans" if self.transposed else "b"
        return (
            f"{INTRINSIC_PREFIX}wmma_load_{self.shape}_{_SHORT[self.data]}_{layout}_{FETCH_SCOPE}"
        )

    @property
    def store(self) -> str:
        short = _SHORT[self.accumulator]
        return f"{INTRINSIC_PREFIX}wmma_store_{self.shape}_{short}_shared_dyn"

    @property
    def trace_names(self) -> tuple[str, ...]:
        return (self.trace_name, self.fill, self.load_data, self.load_weight, self.store)

    @property
    def sum_registers(self) -> int:
        """Registers per thread for a fragment of sums."""
        return self.rows * self.columns * nbytes((), self.accumulator) // (WARP * _REGISTER_BYTES)

    @property
    def data_registers(self) -> int:
        """Registers per thread for a fragment of data, as in PTX, which duplicates half floats."""
        return self._registers(self.rows)

    @property
    def weight_registers(self) -> int:
        return self._registers(self.columns)

    def _registers(self, extent: int) -> int:
        held = 2 if self.data == "float16" else 1
        return held * extent * self.depth * nbytes((), self.data) // (WARP * _REGISTER_BYTES)

    def code(self, trace_name: str) -> tuple[Any, Any]:
        """Description and implementation of one of `trace_names`. Raises KeyError for another."""
        made: dict[str, Callable[[], tuple[Any, Any]]] = {
            self.trace_name: self._of_product,
            self.fill: self._of_fill,
            self.load_data: lambda: self._of_load(self._data(), "row_major"),
            self.load_weight: lambda: self._of_load(
                self._weights(), "col_major" if self.transposed else "row_major"
            ),
            self.store: self._of_store,
        }
        return made[trace_name]()

    def _data(self) -> Argument:
        return Argument("A", (self.rows, self.depth), self.data, DATA_SCOPE, self.depth)

    def _weights(self) -> Argument:
        shape = (self.depth, self.columns)
        shape = shape[::-1] if self.transposed else shape
        return Argument("B", shape, self.data, WEIGHT_SCOPE, shape[-1])

    def _sums(self) -> Argument:
        shape = (self.rows, self.columns)
        return Argument("C", shape, self.accumulator, SUMS_SCOPE, self.columns)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.depth

    def _of_product(self) -> tuple[Any, Any]:
        arguments = (self._data(), self._weights(), self._sums())
        wide = self.accumulator

        def summed(a: Any, b: Any, c: Any, index: Any) -> Any:
            i, j, k = index
            factors = (a[i, k], b[j, k] if self.transposed else b[k, j])
            left, right = (f if self.data == wide else f.astype(wide) for f in factors)
            return c[i, j] + left * right

        def called(*fragments: Any) -> Any:
            a, b, c = (
                part
                for buffer, argument in zip(fragments, arguments, strict=True)
                for part in [(buffer.data, _number(buffer, argument.shape))]
            )
            return tirx.call_intrin("void", "tirx.tvm_mma_sync", *c, *a, *b, *c)

        extents = (self.rows, self.columns, self.depth)
        return described(arguments, (2, 0, 1), extents, summed, 1), coded(
            arguments, (2, 0, 1), called
        )

    def _of_fill(self) -> tuple[Any, Any]:
        sums = self._sums()
        # The function takes a float for any fragment type.
        zero = tirx.const(0, "int32" if self.accumulator == "int32" else "float32")

        def called(c: Any) -> Any:
            where = (c.data, *self._sizes, _number(c, sums.shape))
            return tirx.call_intrin("void", "tirx.tvm_fill_fragment", *where, zero)

        return (
            described((sums,), (), sums.shape, lambda c, index: tirx.const(0, sums.dtype)),
            coded((sums,), (), called),
        )

    def _of_load(self, fragment: Argument, layout: str) -> tuple[Any, Any]:
        stage = Argument("S", fragment.shape, fragment.dtype, FETCH_SCOPE, fragment.factor)
        arguments = (stage, fragment)

        def called(s: Any, f: Any) -> Any:
            return tirx.call_intrin(
                "void", "tirx.tvm_load_matrix_sync", f.data, *self._sizes,
                _number(f, fragment.shape), s.access_ptr("r", ptr_type=stage.dtype), s.strides[0],
                layout,
            )  # fmt: skip

        return (
            described(arguments, (0,), fragment.shape, lambda s, f, index: s[tuple(index)]),
            coded(arguments, (0,), called),
        )

    def _of_store(self) -> tuple[Any, Any]:
        sums = self._sums()
        stage = Argument("S", sums.shape, sums.dtype, RESULT_SCOPE, sums.factor)
        arguments = (sums, stage)

        def called(c: Any, s: Any) -> Any:
            return tirx.call_intrin(
                "void", "tirx.tvm_store_matrix_sync", c.data, *self._sizes,
                _number(c, sums.shape), s.access_ptr("w", ptr_type=stage.dtype), s.strides[0],
                "row_major",
            )  # fmt: skip

        return (
            described(arguments, (0,), sums.shape, lambda c, s, index: c[tuple(index)]),
            coded(arguments, (0,), called),
        )


def _number(buffer: Any, shape: tuple[int, ...]) -> Any:
    """The index of a fragment in its buffer, which TVM stores in row-major order."""
    rows, columns = shape
    stride = buffer.strides[0]
    row = tirx.floordiv(tirx.floordiv(buffer.elem_offset, stride), rows)
    column = tirx.floordiv(tirx.floormod(buffer.elem_offset, stride), columns)
    return row * tirx.floordiv(stride, columns) + column


_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))


#: Types of products and of their sums.
_OF_FLOATS = (("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"))


def _intrinsics() -> Iterator[WarpProduct]:
    for shape in _SHAPES:
        for types in _OF_FLOATS:
            for transposed in (False, True):
                yield WarpProduct(*shape, *types, transposed)
    for rows, columns, depth in _SHAPES:
        for transposed in (False, True):
            # Fragments start at rows and at contiguous steps: 8-byte alignment is not enough.
            if (depth if transposed else columns) >= ALIGNED:
                yield WarpProduct(rows, columns, depth, "int8", "int32", transposed)


INTRINSICS = tuple(_intrinsics())
