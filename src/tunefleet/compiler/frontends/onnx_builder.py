"""The builder that conversions write to: it corrects what some of TVM's write.

Some emit compute definitions where Relax has an operator (Clip, Pad), which no later pass sees
through, and some look up static shapes at run time (Gather).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import array_of
from tunefleet.compiler.frontends.onnx_refusal import Refusal
from tunefleet.compiler.graph.constants import constant
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

#: Relax has these, but the graph pipeline makes no programs of them.
_NOT_LOWERED = frozenset(
    f"relax.{name}" for name in ("multinomial_from_uniform", "nonzero", "unique")
)


def _check_lowered(expr: Any) -> None:
    """Raises Refusal for an expression that could be imported, but not compiled."""
    if isinstance(expr, relax.Tuple):
        parts = expr.fields
    elif isinstance(expr, relax.TupleGetItem):
        parts = [expr.tuple_value]
    elif isinstance(expr, relax.Call):
        parts = expr.args
        if isinstance(expr.op, tvm.ir.Op) and expr.op.name in _NOT_LOWERED:
            raise Refusal(f"{expr.op.name} cannot be compiled here")
    else:
        return
    for part in parts:
        _check_lowered(part)


class Builder(relax.BlockBuilder):  # type: ignore[misc, name-defined]
    """Writes operators for compute definitions, and the values of calls on constants."""

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        rule = _OPERATORS.get(func)
        if rule is None:
            return super().emit_te(func, *args, **kwargs)
        return self.emit(rule(*args, **kwargs))

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        _check_lowered(expr)
        folded = _folded(expr)
        return super().emit(expr, name_hint) if folded is None else folded

    def normalize(self, expr: Any) -> Any:
        _check_lowered(expr)
        folded = _folded(expr)
        return super().normalize(expr) if folded is None else folded


def _operand(x: Any, like: Any) -> Any:
    return relax.const(x, str(like.ty.dtype)) if isinstance(x, int | float) else x


def _pad(data: Any, before: list[int], after: list[int], value: Any = 0.0) -> Any:
    widths = [int(width) for pair in zip(before, after, strict=True) for width in pair]
    return relax.op.nn.pad(data, widths, "constant", float(value))


_OPERATORS: dict[Any, Callable[..., Any]] = {
    tvm.topi.maximum: lambda a, b: relax.op.maximum(a, _operand(b, a)),
    tvm.topi.minimum: lambda a, b: relax.op.minimum(a, _operand(b, a)),
    tvm.topi.nn.pad: _pad,
}


def _gather(call: Any, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    return np.take_along_axis(data, indices, int(call.attrs.axis))


def _take(call: Any, data: NDArray[Any], indices: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.take(data, indices, int(call.attrs.axis)))


_FOLDS: dict[str, Callable[..., NDArray[Any]]] = {
    "relax.add": lambda call, a, b: np.add(a, b),
    "relax.astype": lambda call, x: x.astype(str(call.attrs.dtype)),
    "relax.gather_elements": _gather,
    "relax.isnan": lambda call, x: np.isnan(x),
    "relax.less": lambda call, a, b: np.less(a, b),
    "relax.take": _take,
    "relax.where": lambda call, condition, a, b: np.where(condition, a, b),
}


def _folded(expr: Any) -> Any:
    value = _value(expr)
    return None if value is None or isinstance(expr, tvm.ir.GenericConst) else constant(value)


def _value(expr: Any) -> NDArray[Any] | None:
    """What `expr` evaluates to, where that is known."""
    if isinstance(expr, tvm.ir.GenericConst):
        return array_of(expr.value)
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        return None
    if expr.op.name == "relax.shape_to_tensor":
        return _shape(expr.args[0])
    if expr.op.name not in _FOLDS:
        return None
    values = [_value(arg) for arg in expr.args]
    if any(value is None for value in values):
        return None
    return _FOLDS[expr.op.name](expr, *values)


def _shape(expr: Any) -> NDArray[Any] | None:
    if isinstance(expr, relax.Call) and expr.op.name == "relax.shape_of":
        expr = expr.args[0].ty.shape
    if not isinstance(expr, relax.ShapeExpr):
        return None
    extents = list(expr.values)
    if not all(isinstance(extent, int | tvm.tirx.IntImm) for extent in extents):
        return None
    return np.array([int(extent) for extent in extents], "int64")
