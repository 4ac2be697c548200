"""Conversions of torch operators that give distances of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op


def _of_degree(t: Any, apart: Any, degree: float, dtype: str) -> Any:
    """Of the differences of rows in their last axis: how many there are for a degree of zero."""
    emit = t.block_builder.emit
    apart = emit(op.abs(emit(apart)))
    if degree == 0:
        differs = op.not_equal(apart, relax.const(0, dtype))
        return emit(op.sum(emit(op.astype(differs, dtype)), -1))
    if degree == 1:
        return emit(op.sum(apart, -1))
    if degree == math.inf:
        return emit(op.max(apart, -1))
    if degree == 2:
        squares = emit(op.multiply(apart, apart))
        return emit(op.sqrt(emit(op.sum(squares, -1))))
    powers = emit(op.power(apart, relax.const(degree, dtype)))
    return emit(op.power(emit(op.sum(powers, -1)), relax.const(1 / degree, dtype)))


def _between(t: Any, node: Node) -> Any:
    """_cdist_forward (x, y, p): between all rows of one and all of the other."""
    left, right = t.retrieve_args(node)[:2]
    apart = op.subtract(op.expand_dims(left, -2), op.expand_dims(right, -3))
    return _of_degree(t, apart, float(argument(node, 2, "p")), dtype_of(node))


def _within(t: Any, node: Node) -> Any:
    """_pdist_forward (x, p): between each row and those after it."""
    x = t.env[node.args[0]]
    pairs = np.triu_indices(int(x.ty.shape[0]), 1)
    first, second = (op.take(x, relax.const(rows.astype("int64")), 0) for rows in pairs)
    degree = float(argument(node, 1, "p", 2))
    return _of_degree(t, op.subtract(first, second), degree, dtype_of(node))


#: By the name of the torch operator.
DISTANCES: dict[str, Callable[[Any, Node], Any]] = {
    "_cdist_forward.default": _between,
    "_pdist_forward.default": _within,
}
