"""Evaluates index expressions at many positions at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.toolchain import load_tvm

tirx = load_tvm().tirx

_OPERATIONS = (
    (tirx.Add, np.add), (tirx.Mul, np.multiply), (tirx.Sub, np.subtract),
    (tirx.FloorDiv, np.floor_divide), (tirx.FloorMod, np.mod), (tirx.Min, np.minimum),
    (tirx.Max, np.maximum), (tirx.Div, np.floor_divide), (tirx.Mod, np.mod),
)  # fmt: skip


def evaluated(node: Any, places: Mapping[Any, NDArray[np.int64]]) -> NDArray[np.int64]:
    """An index for given values of the variables; data-dependent parts count as constant."""
    if isinstance(node, tirx.IntImm):
        return np.array(int(node))
    if isinstance(node, tirx.Var):
        return places.get(node, np.array(0))
    if isinstance(node, tirx.Cast):
        return evaluated(node.value, places)
    if isinstance(node, tirx.Broadcast):
        return evaluated(node.value, places)
    for kind, operation in _OPERATIONS:
        if isinstance(node, kind):
            found: NDArray[np.int64] = operation(
                evaluated(node.a, places), evaluated(node.b, places)
            )
            return found
    return np.array(0)


def element(
    buffer: Any, indices: Sequence[Any], places: Mapping[Any, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """The row-major element offset of indices in a buffer."""
    shape = [int(extent) if isinstance(extent, tirx.IntImm) else 1 for extent in buffer.ty.shape]
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    values = (evaluated(i, places) * step for i, step in zip(indices, steps, strict=True))
    return sum(values, np.zeros(1, np.int64))
