"""Constants of Relax and arrays, without copies of either: weights may be gigabytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import ALIGNMENT, array_of, from_array
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

Array = NDArray[Any]

#: A copy of less costs nothing, and DLPack has its exceptions (empty tensors, scalars).
_LEAST_BYTES = 256


def tensor_of(array: Array) -> Any:
    """A TVM tensor with the values of an array, in its memory where TVM can read them there.

    Nobody may write to either from then on.
    """
    array = np.require(array, requirements="C")
    aligned = array.ctypes.data % ALIGNMENT == 0
    if array.nbytes < _LEAST_BYTES or not aligned or not array.flags.writeable:
        return tvm.runtime.tensor(array)
    return from_array(array)


def constant(array: Array) -> Any:
    """A Relax constant with the values of an array, as `tensor_of`."""
    return relax.const(tensor_of(array), str(array.dtype))


def value_of(expr: Any) -> Array | None:
    """The values of a constant, as `array_of`; None for any other expression."""
    return array_of(expr.value) if isinstance(expr, tvm.ir.GenericConst) else None
