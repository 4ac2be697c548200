"""Interpolation along one axis, whose taps and weights are known at import."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

#: With more taps than this, a product with the matrix of weights is faster than one term for each.
_MAX_TERMS = 4


def interpolation(
    positions: NDArray[Any],
    before: int,
    narrow: float = 1.0,
    cubic: float | None = None,
    *,
    exclude: bool = False,
) -> NDArray[np.float64]:
    """The matrix (outputs, `before`) that takes an axis to its values at `positions`.

    `narrow` is what antialiasing multiplies distances by where it shrinks. `cubic` is the
    coefficient of Keys' kernel, None for a linear one. `exclude` leaves out what lies beyond the
    ends, which else repeat.
    """
    reach = math.ceil((1 if cubic is None else 2) / narrow)
    base = np.floor(positions).astype("int64")
    matrix: NDArray[np.float64] = np.zeros((len(positions), before))
    rows = np.arange(len(positions))
    for tap in range(-reach, reach + 2):
        index = base + tap
        away = np.abs(index - positions.astype("float64")) * narrow
        weight = np.clip(1 - away, 0, None) if cubic is None else _keys(away, cubic)
        if exclude:
            weight = np.where((index >= 0) & (index < before), weight, 0)
        np.add.at(matrix, (rows, index.clip(0, before - 1)), weight)
    matrix /= matrix.sum(1, keepdims=True)
    return matrix


def _keys(away: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' kernel at a distance (IEEE TASSP 29(6), 1981)."""
    near = ((a + 2) * away - (a + 3)) * away**2 + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    return np.where(away < 1, near, np.where(away < 2, far, 0.0))


def resampled(emit: Callable[[Any], Any], x: Any, index: int, matrix: NDArray[np.float64]) -> Any:
    """An axis times a matrix, which has few numbers in each row if nothing is shrunk. `emit` binds
    an expression to a variable."""
    dtype, rank = str(x.ty.dtype), int(x.ty.ndim)
    terms = int((matrix != 0).sum(1).max())
    if terms > _MAX_TERMS:
        order = [i for i in range(rank) if i != index] + [index]
        back = [order.index(i) for i in range(rank)]
        columns = np.ascontiguousarray(matrix.T).astype(dtype)
        product = op.matmul(op.permute_dims(x, order), relax.const(columns, dtype))
        return emit(op.permute_dims(product, back))
    places = np.argsort(-np.abs(matrix), 1, kind="stable")[:, :terms]
    weights = np.take_along_axis(matrix, places, 1)
    shape = [-1 if i == index else 1 for i in range(rank)]
    total = None
    for term in range(terms):
        place = np.ascontiguousarray(places[:, term]).astype("int64")
        taken = op.take(x, relax.const(place, "int64"), index, mode="clip")
        part = taken * relax.const(weights[:, term].reshape(shape).astype(dtype), dtype)
        total = emit(part if total is None else total + part)
    return total
