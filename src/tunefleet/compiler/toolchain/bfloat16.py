"""bfloat16 for TVM, which converts it to float32 for all computation: numbers are stored as bits,
the upper half of a float32, in uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.toolchain.loading import load_tvm

BFLOAT16 = "bfloat16"
_BITS = "uint16"
#: Half of the last kept bit minus one, and the bits of NaN.
_HALF, _NAN = 0x7FFF, 0x7FC0


def stored(dtype: str) -> str:
    """The buffer type for a dtype: uint16 for bfloat16."""
    return _BITS if dtype == BFLOAT16 else dtype


def widened(value: Any, dtype: str, accumulator: str) -> Any:
    """A stored number converted to the accumulator type."""
    from tvm.script import tirx as T

    if dtype != BFLOAT16:
        return T.cast(value, accumulator)
    return T.reinterpret(accumulator, T.shift_left(T.cast(value, "uint32"), T.uint32(16)))


def rounded(value: Any) -> Any:
    """The bits of a float32 expression rounded to the nearest bfloat16, ties to even."""
    tirx = load_tvm().tirx
    bits = tirx.reinterpret("uint32", value)
    sixteen, one = tirx.const(16, "uint32"), tirx.const(1, "uint32")
    last = tirx.bitwise_and(tirx.shift_right(bits, sixteen), one)
    nearest = tirx.shift_right(bits + tirx.const(_HALF, "uint32") + last, sixteen)
    return tirx.Select(tirx.isnan(value), tirx.const(_NAN, _BITS), tirx.Cast(_BITS, nearest))


def rounded_array(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """`rounded` for an array."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    nearest = (bits + (_HALF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(values), _NAN, nearest).astype(np.uint16)


def floats_of(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 numbers of an array of bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
