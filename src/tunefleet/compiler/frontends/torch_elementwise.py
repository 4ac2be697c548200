"""Conversions of torch operators that compute each number by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of, shape_of
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op


def _copied_sign(t: Any, node: Node) -> Any:
    """copysign: with the sign of the other, that of a negative zero too. Torch's own
    decomposition has a truth as a float."""
    dtype = dtype_of(node)
    zero = relax.const(0, dtype)
    size, sign = (op.astype(_operand(t, x, dtype), dtype) for x in node.args[:2])
    sign = t.block_builder.emit(sign)
    inverse = op.divide(relax.const(1, dtype), sign)
    negative = op.logical_or(op.less(sign, zero), op.less(inverse, zero))
    size = t.block_builder.emit(op.abs(size))
    return t.block_builder.emit(op.where(negative, op.negative(size), size))


def _operand(t: Any, x: Any, dtype: str) -> Any:
    return t.env[x] if isinstance(x, Node) else relax.const(x, dtype)


def _filled_alike(t: Any, node: Node) -> Any:
    """full_like, whose number may be a truth."""
    number: Any = node.args[1]
    if isinstance(number, Node):
        raise NotImplementedError("a number that is computed")
    full = relax.const(number, dtype_of(node))
    return t.block_builder.emit(op.broadcast_to(full, shape_of(node)))


def _finite(t: Any, node: Node) -> Any:
    """nan_to_num (x, for none, for infinity, for minus infinity)."""
    x, dtype = t.env[node.args[0]], dtype_of(node)
    if "float" not in dtype:
        return x
    limit = float(np.finfo(dtype).max)
    none, most, least = (
        default if (given := argument(node, index, name)) is None else float(given)
        for index, name, default in ((1, "nan", 0.0), (2, "posinf", limit), (3, "neginf", -limit))
    )
    emit = t.block_builder.emit
    x = emit(op.where(op.equal(x, x), x, relax.const(none, dtype)))
    for infinity, number in ((math.inf, most), (-math.inf, least)):
        x = emit(op.where(op.equal(x, relax.const(infinity, dtype)), relax.const(number, dtype), x))
    return x


def _hypotenuse(t: Any, node: Node) -> Any:
    """hypot, whose squares must not overflow."""
    emit, dtype = t.block_builder.emit, dtype_of(node)
    left, right = (emit(op.abs(t.env[x])) for x in node.args[:2])
    larger, smaller = emit(op.maximum(left, right)), emit(op.minimum(left, right))
    divisor = op.where(op.greater(larger, relax.const(0, dtype)), larger, relax.const(1, dtype))
    ratio = emit(op.divide(smaller, divisor))
    root = op.sqrt(op.add(op.multiply(ratio, ratio), relax.const(1, dtype)))
    return emit(op.multiply(larger, root))


def _elu(t: Any, node: Node) -> Any:
    """With the scales that make selu of it, which TVM leaves out."""
    x, dtype = t.env[node.args[0]], dtype_of(node)
    names = ("alpha", "scale", "input_scale")
    factors = (argument(node, index, name, 1) for index, name in enumerate(names, 1))
    alpha, scale, inner = (relax.const(factor, dtype) for factor in factors)
    below = op.multiply(alpha, op.subtract(op.exp(op.multiply(x, inner)), relax.const(1, dtype)))
    chosen = op.where(op.greater(x, relax.const(0, dtype)), x, below)
    return t.block_builder.emit(op.multiply(scale, chosen))


#: Where a series takes over from the function itself, which loses what a small number has beside 1.
#: Seven terms are exact there.
_SMALL = {"float32": 1 / 16, "float64": 0.01}
_TERMS = 7
Exprs = Callable[[Any], Any]


def _near_zero(beyond: Callable[[Any, Any], Any], term: Callable[[int], float]) -> Exprs:
    """A function that is 0 at 0: `beyond` of x and 1 says what it is, `term` the factors of its
    series."""

    def of(x: Any) -> Any:
        own = str(x.ty.dtype)
        series = relax.const(term(_TERMS), own)
        for degree in range(_TERMS - 1, 0, -1):
            series = op.add(op.multiply(series, x), relax.const(term(degree), own))
        near = op.less(op.abs(x), relax.const(_SMALL[own], own))
        return op.where(near, op.multiply(series, x), beyond(x, relax.const(1.0, own)))

    return of


_log1p = _near_zero(lambda x, one: op.log(op.add(x, one)), lambda n: -((-1.0) ** n) / n)
_expm1 = _near_zero(lambda x, one: op.subtract(op.exp(x), one), lambda n: 1.0 / math.factorial(n))


def _precise(function: Callable[[Any, Node, Exprs], Any]) -> Callable[[Any, Node], Any]:
    """Computes half precision, and whole numbers, in single."""

    def convert(t: Any, node: Node) -> Any:
        emit, dtype = t.block_builder.emit, dtype_of(node)
        own = dtype if dtype in _SMALL else "float32"
        x = emit(op.astype(_operand(t, node.args[0], own), own))
        return emit(op.astype(emit(function(x, node, emit)), dtype))

    return convert


def _softplus(x: Any, node: Node, emit: Exprs) -> Any:
    """softplus (x, beta, threshold)."""
    own = str(x.ty.dtype)
    beta = relax.const(float(argument(node, 1, "beta", 1.0)), own)
    most = relax.const(float(argument(node, 2, "threshold", 20.0)), own)
    scaled = emit(op.multiply(x, beta))
    away = emit(op.exp(op.minimum(scaled, most)))
    return op.where(op.greater(scaled, most), x, op.divide(_log1p(away), beta))


def _known_extreme(function: Any) -> Callable[[Any, Node], Any]:
    """The larger or smaller of two of which one may be none."""

    def convert(t: Any, node: Node) -> Any:
        dtype, emit = dtype_of(node), t.block_builder.emit
        left, right = (emit(op.astype(_operand(t, arg, dtype), dtype)) for arg in node.args[:2])
        # That something is equal to itself is taken for true.
        known = emit(op.where(op.not_equal(right, right), left, function(left, right)))
        return emit(op.where(op.not_equal(left, left), right, known))

    return convert


def _shifted(function: Any) -> Callable[[Any, Node], Any]:
    """By as many bits as a number has, or by fewer than none, nothing but the sign is left."""

    def convert(t: Any, node: Node) -> Any:
        dtype, emit = dtype_of(node), t.block_builder.emit
        info = np.iinfo(dtype)
        zero, last = relax.const(0, dtype), relax.const(info.bits - 1, dtype)
        x, by = (emit(op.astype(_operand(t, arg, dtype), dtype)) for arg in node.args[:2])
        beyond = emit(op.logical_or(op.less(by, zero), op.greater(by, last)))
        shifted = emit(function(x, op.where(beyond, last, by)))
        keeps_sign = function is op.right_shift and info.min < 0
        return shifted if keeps_sign else emit(op.where(beyond, zero, shifted))

    return convert


#: By the name of the torch operator.
ELEMENTWISE: dict[str, Callable[[Any, Node], Any]] = {
    "copysign.Scalar": _copied_sign,
    "copysign.Tensor": _copied_sign,
    "elu.default": _elu,
    "full_like.default": _filled_alike,
    "hypot.default": _hypotenuse,
    "nan_to_num.default": _finite,
    "log1p.default": _precise(lambda x, node, emit: _log1p(x)),
    "expm1.default": _precise(lambda x, node, emit: _expm1(x)),
    "softplus.default": _precise(_softplus),
    **dict.fromkeys(
        ("__lshift__.Scalar", "__lshift__.Tensor", "shift_left.default"), _shifted(op.left_shift)
    ),
    **dict.fromkeys(
        ("__rshift__.Scalar", "__rshift__.Tensor", "shift_right_arithmetic.default"),
        _shifted(op.right_shift),
    ),
    "fmax.default": _known_extreme(op.maximum),
    "fmin.default": _known_extreme(op.minimum),
}
