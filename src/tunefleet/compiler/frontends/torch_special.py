"""Conversions of torch operators that compute functions beyond those of C: erfc, erfinv, the
logarithm of the gamma function, its derivative, and a Bessel function.

All are computed in double precision: their series lose digits that single precision does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import dtype_of
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, te, tirx = tvm.relax, tvm.te, tvm.tirx
op = relax.op

_DOUBLE = "float64"

# erfc(x) = t * exp(-x**2 + P(2 * t - 1)) for t = 1 / (1 + x / 2) and x >= 0, with a relative error
# of 2e-13. A fit of ours: Chebyshev's, written in powers.
_ERFC = (
    -0.6717940840566906, 0.6726432239801892, 0.04734330684136097, -0.0468956104192077,
    -0.009872689339943928, 0.00882494268255261, 0.0017589330634116148, -0.0023458541594613834,
    -0.00014624208598555842, 0.000673911164700606, -9.376242055522286e-05, -0.00017508749279194545,
    7.150135334483887e-05, 3.34226651271151e-05, -3.0432463889640767e-05, -2.164207859313025e-06,
    8.966425605110701e-06, -9.56964920982662e-07, -1.7231813049220094e-06, 2.3449409997021033e-07,
    1.641223256179338e-07,
)  # fmt: skip

# Lanczos, "A precision approximation of the gamma function" (1964), with g = 7 and nine terms.
_LANCZOS_G = 7.0
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip

# digamma(x) = log(x) - 1 / (2 x) - sum of b / x**(2 k): Bernoulli's numbers over 2 k, from k = 1.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
#: The series is taken so far beyond a number.
_SHIFT = 10

#: Below this the Bessel function is a sum of powers, above it is one of reciprocal powers.
_BESSEL_TOP = 20.0
_BESSEL_LOW = tuple(1 / math.factorial(k) ** 2 for k in range(45))
_BESSEL_HIGH = tuple(
    math.prod((2 * j - 1) ** 2 for j in range(1, k + 1)) / (8**k * math.factorial(k))
    for k in range(25)
)

# Winitzki's approximation of erfinv, within 2e-3 of it; two steps of Halley's make it exact.
_WINITZKI = 0.147
_HALLEY_STEPS = 2


def _number(value: float) -> Any:
    return tirx.const(value, _DOUBLE)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """From the lowest power on."""
    *others, value = map(_number, coefficients)
    for coefficient in reversed(others):
        value = value * x + coefficient
    return value


def _chosen(condition: Any, yes: Any, no: Any) -> Any:
    return tirx.Select(condition, yes, no)


def _from_nearest(x: Any) -> Any:
    """How far a number is from the whole number that is nearest: what a sine of pi times it needs,
    with all of its digits."""
    return x - tirx.nearbyint(x)


def _erfc(x: Any) -> Any:
    size = tirx.abs(x)
    t = _number(1) / (size * 0.5 + 1.0)
    above = t * tirx.exp(_polynomial(t * 2.0 - 1.0, _ERFC) - size * size)
    return _chosen(x < _number(0), _number(2) - above, above)


def _log_gamma(x: Any) -> Any:
    reflected = x < _number(0.5)
    below = _chosen(reflected, -x, x - 1.0)
    series = _number(_LANCZOS[0])
    for k, coefficient in enumerate(_LANCZOS[1:], 1):
        series = series + _number(coefficient) / (below + float(k))
    top = below + (_LANCZOS_G + 0.5)
    value = (below + 0.5) * tirx.log(top) - top + tirx.log(series) + math.log(2 * math.pi) / 2
    sine = tirx.abs(tirx.sin(_from_nearest(x) * math.pi))
    value = _chosen(reflected, tirx.log(_number(math.pi) / sine) - value, value)
    infinite = tirx.abs(x) == _number(math.inf)
    return _chosen(infinite, _number(math.inf), value)


def _digamma(x: Any) -> Any:
    negative = x < _number(0)
    start = _chosen(negative, _number(1) - x, x)
    end = start + float(_SHIFT)
    inverse = _number(1) / end
    squared = inverse * inverse
    value = tirx.log(end) - inverse * 0.5 - squared * _polynomial(squared, _DIGAMMA)
    for k in range(_SHIFT):
        value = value - _number(1) / (start + float(k))
    angle = _from_nearest(x) * math.pi
    reflection = tirx.cos(angle) / tirx.sin(angle) * math.pi
    value = _chosen(negative, value - reflection, value)
    value = _chosen(tirx.all(negative, angle == _number(0)), _number(math.nan), value)
    return _chosen(x == _number(0), _number(-1) / x, value)


def _bessel(x: Any) -> Any:
    """The modified one of the first kind and order zero."""
    size = tirx.abs(x)
    low = _polynomial(size * size * 0.25, _BESSEL_LOW)
    high = tirx.exp(size) / tirx.sqrt(size * (2 * math.pi))
    high = high * _polynomial(_number(1) / size, _BESSEL_HIGH)
    return _chosen(size <= _number(_BESSEL_TOP), low, high)


def _inverse_start(y: Any) -> Any:
    logarithm = tirx.log((_number(1) - y) * (_number(1) + y))
    middle = logarithm * 0.5 + 2 / (math.pi * _WINITZKI)
    square = tirx.sqrt(middle * middle - logarithm / _number(_WINITZKI)) - middle
    size = tirx.sqrt(_chosen(square < _number(0), _number(0), square))  # rounded below it
    return _chosen(y < _number(0), -size, size)


def _halley(x: Any, y: Any) -> Any:
    """A step towards the x whose erf is y. Near 1 it counts from there, or digits would be lost."""
    size = tirx.abs(x)
    wanted = tirx.abs(y)
    small, large = tirx.erf(size) - wanted, (_number(1) - wanted) - _erfc(size)
    missed = _chosen(wanted < _number(0.5), small, large)
    step = missed * tirx.exp(size * size) * (math.sqrt(math.pi) / 2)
    better = size - step / (size * step + 1.0)
    better = _chosen(y < _number(0), -better, better)
    return _chosen(wanted == _number(1), y * math.inf, better)


def _element_by_element(function: Callable[..., Any]) -> Callable[[Any, Node], Any]:
    def convert(t: Any, node: Node) -> Any:
        (x,) = t.retrieve_args(node)
        doubled = t.block_builder.emit(op.astype(x, _DOUBLE))
        return t.block_builder.emit(op.astype(_applied(t, function, doubled), dtype_of(node)))

    return convert


def _applied(t: Any, function: Callable[..., Any], *arrays: Any) -> Any:
    def compute(*sources: Any) -> Any:
        return te.compute(
            sources[0].shape, lambda *place: function(*(s(*place) for s in sources)), name="special"
        )

    name = function.__name__.strip("_")
    return t.block_builder.emit_te(compute, *arrays, primfunc_name_hint=name)


def _inverse_erf(t: Any, node: Node) -> Any:
    y = t.block_builder.emit(op.astype(t.env[node.args[0]], _DOUBLE))
    x = _applied(t, _inverse_start, y)
    for _ in range(_HALLEY_STEPS):
        x = _applied(t, _halley, x, y)
    return t.block_builder.emit(op.astype(x, dtype_of(node)))


#: By the name of the torch operator.
SPECIAL: dict[str, Callable[[Any, Node], Any]] = {
    "digamma.default": _element_by_element(_digamma),
    "erfc.default": _element_by_element(_erfc),
    "erfinv.default": _inverse_erf,
    "i0.default": _element_by_element(_bessel),
    "lgamma.default": _element_by_element(_log_gamma),
}
