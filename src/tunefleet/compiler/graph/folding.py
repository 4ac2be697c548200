"""Constants of Relax as NumPy arrays, and calls on them evaluated with NumPy.

TVM's own FoldConstant compiles one function per operator and shape: 35 s of CPU for a ResNet-50.
NumPy does the same work in well under a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax
Array = NDArray[Any]

_ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.power": np.power,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: (1.0 / np.sqrt(x)).astype(x.dtype),
    "relax.negative": np.negative,
    "relax.exp": np.exp,
    "relax.abs": np.abs,
}

#: Larger results are left to the compiler: a folded broadcast may outgrow what it was made of.
_MAX_GROWTH = 4


def ints(values: Any) -> list[int]:
    return [int(v) for v in values]


def _permute(call: Any, x: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(x, None if axes is None else ints(axes))


def _expand(call: Any, x: Array) -> Array:
    return np.expand_dims(x, tuple(ints(call.attrs.axis)))


def _squeeze(call: Any, x: Array) -> Array:
    axes = call.attrs.axis
    return np.squeeze(x, None if axes is None else tuple(ints(axes)))


def _slice(call: Any, x: Array) -> Array:
    axes, starts, ends = (ints(values) for values in call.args[1:4])
    steps = ints(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(start, end, step)
    return x[tuple(cut)]


def shape_of(call: Any) -> list[int]:
    return ints(call.args[1].values)


_SHAPED: dict[str, Callable[[Any, Array], Array]] = {
    "relax.permute_dims": _permute,
    "relax.expand_dims": _expand,
    "relax.squeeze": _squeeze,
    "relax.reshape": lambda call, x: np.reshape(x, shape_of(call)),
    "relax.broadcast_to": lambda call, x: np.broadcast_to(x, shape_of(call)),
    "relax.astype": lambda call, x: x.astype(str(call.attrs.dtype)),
    "relax.strided_slice": _slice,
}


def fold(name: str, call: Any) -> Any:
    """The constant a call on constants computes, or None."""
    if name in _ELEMENTWISE:
        values = [value_of(a) for a in call.args]
        if any(v is None for v in values):
            return None
        known = [v for v in values if v is not None]
        with np.errstate(all="ignore"):
            result = _ELEMENTWISE[name](*known).astype(known[0].dtype)
        limit = _MAX_GROWTH * max(v.size for v in known)
    elif name in _SHAPED:
        value = value_of(call.args[0])
        if value is None:
            return None
        result, limit = _SHAPED[name](call, value), _MAX_GROWTH * value.size
    elif name == "relax.concat" and isinstance(call.args[0], relax.Tuple):
        parts = [value_of(part) for part in call.args[0].fields]
        if any(part is None for part in parts):
            return None
        result = np.concatenate([part for part in parts if part is not None], int(call.attrs.axis))
        limit = result.size
    else:
        return None
    return constant(result) if result.size <= limit else None
