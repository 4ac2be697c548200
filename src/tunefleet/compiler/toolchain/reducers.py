"""Reductions that start from infinity, for TVM to take apart.

TVM rewrites a reduction by several threads, or by several numbers of a vector, only if it knows the
operation and what it starts from. Of the largest number it knows the least finite one, of which the
largest of nothing but infinities would be wrong (`graph/legalize.py` starts from infinity).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any


def use_infinities() -> None:
    """Call once per process, after TVM was imported."""
    import tvm_ffi
    from tvm import tirx

    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, start in ((tirx.max, -math.inf), (tirx.min, math.inf)):
        register(1, _kept(_combiner(combine)), _kept(_identity(start)))


def _combiner(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], list[Any]]:
    return lambda left, right: [combine(left[0], right[0])]


def _identity(start: float) -> Callable[[Any], list[Any]]:
    from tvm import tirx

    def identity(given: Any) -> list[Any]:
        """What a reduction of the type of `given`, from which one starts, has to start from."""
        dtype = str(given[0].ty.dtype)
        if dtype.startswith("float"):
            return [tirx.const(start, dtype)]
        return [tirx.min_value(dtype) if start < 0 else tirx.max_value(dtype)]

    return identity


def _kept(function: Callable[..., Any]) -> Any:
    """As a function of TVM that is never given back: its table outlives Python, and a process that
    ends would fall over what it frees there."""
    import tvm_ffi

    made = tvm_ffi.convert(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return made
