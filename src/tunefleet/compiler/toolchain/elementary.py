"""exp, erf, tanh and whole powers in vector instructions. TVM calls libm for every element, and
makes two exponentials of a tanh.

libm's `erff` takes another way for every range of its argument: the latency of a product with GELU
would depend, threefold, on the numbers that it is measured with. The functions here take one way
for all numbers. They are for float32, all but powers for narrower types through it; float64 stays
with libm.

The coefficients are fits of ours: least squares, reweighted towards the largest relative error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

# exp(r) = 1 + r + r**2 * P(r) for |r| <= log(2) / 2, with a relative error of 3.1e-9.
_EXP = (
    0.49999993447745394, 0.16666520630984435, 0.04166838805283181, 0.008368716966536866,
    0.0013814598591321834,
)  # fmt: skip
#: Beyond these the result is 0 and infinite.
_EXP_LOW, _EXP_HIGH = -104.0, 89.0
# log(2) in two parts: the first has so few bits that its product with a whole number is exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = math.log(2) - _LN2_HIGH

# erf(x) = x * P(x**2) / Q(x**2) for |x| <= 3.8325, with a relative error of 1.3e-8; beyond it is 1.
_ERF_TOP = 3.8325
_ERF_P = (
    1.128379152062198, 0.1873090365368026, 0.052418629573223144, 0.0036527851274208815,
    0.0002859440536523441, 2.1231287338398306e-06,
)  # fmt: skip
_ERF_Q = (
    1.0, 0.49933121532339203, 0.11290079729930244, 0.01474256043664416, 0.0011417150285406488,
    3.889828703613908e-05,
)  # fmt: skip

# tanh(x) = x * P(x**2) / Q(x**2) for |x| <= 9.01, with a relative error of 2.1e-8; beyond it is 1.
_TANH_TOP = 9.01
_TANH_P = (
    0.999999979230535, 0.1338037144519403, 0.0034948108988781105, 2.0596272036118692e-05,
    1.333684616085991e-08,
)  # fmt: skip
_TANH_Q = (
    1.0, 0.46713686860652703, 0.025874026109958835, 0.0003284363010789093, 7.769282092963078e-07,
)  # fmt: skip

#: Functions that become long expressions.
_LONG = ("tirx.exp", "tirx.erf", "tirx.tanh", "tirx.sigmoid")
#: Of an expression, besides the arguments of a call.
_PARTS = ("a", "b", "value", "condition", "true_value", "false_value", "body")

#: The largest exponent for which products are quicker than libm beyond doubt.
_MOST_POWER = 16


def use_vector_functions() -> None:
    """From here on, LLVM code made by this process calls libm for none of them."""
    from tvm import tirx
    from tvm.ir import register_op_attr

    rules = {
        "exp": _through_float32("exp", _exp),
        "erf": _through_float32("erf", _erf),
        "tanh": _through_float32("tanh", _tanh),
        "pow": _pow,
    }
    for name, rule in rules.items():
        tirx.op.register_intrin_lowering(f"tirx.{name}", target="llvm", f=rule, level=11)
    # TVM's code for CUDA knows no name for it.
    tirx.op.register_intrin_lowering("tirx.fma", target="cuda", f=_fma_of_cuda, level=11)
    # TVM would take a vector loop with one of these apart, and LLVM does not always find it again:
    # rounding to 8 bits takes up to three times as long then, and to compile it four times.
    for name in ("erf", "nearbyint", "rsqrt", "isnan"):
        register_op_attr(f"tirx.{name}", "TVectorizable", True, 11)


def _fma_of_cuda(call: Any) -> Any:
    """x * y + z rounded once, by CUDA's own functions of float32 and float64."""
    from tvm import tirx

    kind, _ = _kind(call)
    name = "fma" if kind == "float64" else "fmaf"
    return tirx.call_pure_extern(str(call.ty), name, *call.args)


def _through_float32(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lower(call: Any) -> Any:
        (x,) = call.args
        kind, lanes = _kind(call)
        if kind == "float64":
            return _libm(name, x)
        wide = x if kind == "float32" else x.astype(f"float32{lanes}")
        result = _libm(name, wide) if _calls_functions(x) else make(wide)
        return result if kind == "float32" else result.astype(str(call.ty))

    return lower


def _calls_functions(x: Any) -> bool:
    """Whether `x` is made by one of these: it stands two dozen times in what becomes of the outer
    function, which LLVM sorts out, but not two dozen times two dozen times.

    TVM's own binding of a value to a name (Let) does not nest: its LLVM code generator fails.
    """
    if getattr(getattr(x, "op", None), "name", "") in _LONG:
        return True
    parts = [getattr(x, name) for name in _PARTS if hasattr(x, name)]
    return any(_calls_functions(part) for part in [*parts, *getattr(x, "args", ())])


def _exp(x: Any) -> Any:
    """Powers of two by their bits, the rest by a polynomial: within 2 units in the last place."""
    from tvm import tirx

    def two_to(exponent: Any) -> Any:
        return tirx.reinterpret(x.ty, (exponent + 127) << 23)

    clipped = _clipped(x, _EXP_LOW, _EXP_HIGH)
    count = tirx.nearbyint(clipped * (1 / math.log(2)))
    rest = clipped - count * _LN2_HIGH - count * _LN2_LOW
    value = rest * rest * _polynomial(rest, _EXP) + rest + 1.0
    # The power itself may be too small or too large for a float32.
    power = count.astype(f"int32{_kind(x)[1]}")
    half = power >> 1
    return value * two_to(half) * two_to(power - half)


def _erf(x: Any) -> Any:
    """Within 6 units in the last place."""
    return _quotient(x, _ERF_TOP, _ERF_P, _ERF_Q)


def _tanh(x: Any) -> Any:
    """Within 6 units in the last place."""
    return _quotient(x, _TANH_TOP, _TANH_P, _TANH_Q)


def _quotient(x: Any, top: float, over: Sequence[float], under: Sequence[float]) -> Any:
    """x times a quotient of polynomials of its square, from -1 to 1; one of these beyond `top`."""
    clipped = _clipped(x, -top, top)
    square = clipped * clipped
    value = clipped * _polynomial(square, over) / _polynomial(square, under)
    return _clipped(value, -1.0, 1.0)


def _pow(call: Any) -> Any:
    """Products of float32 for a small whole exponent that is known; libm else."""
    x, exponent = call.args
    if _kind(x)[0] != "float32" or _calls_functions(x):
        return _libm("pow", x, exponent)
    known = getattr(exponent, "value", exponent)  # the one value of all lanes
    times = getattr(known, "value", 0)
    if times not in range(2, _MOST_POWER + 1):
        return _libm("pow", x, exponent)
    return _product(x, int(times))


def _product(x: Any, times: int) -> Any:
    if times == 1:
        return x
    half = _product(x, times // 2)
    return half * half * x if times % 2 else half * half


def _libm(name: str, *arguments: Any) -> Any:
    """What TVM does itself. LLVM knows exp, pow and tanh of vectors, and nothing of erf."""
    from tvm import tirx

    x = arguments[0]
    if name != "erf":
        return tirx.call_llvm_pure_intrin(x.ty, f"llvm.{name}", *arguments)
    kind, lanes = _kind(x)
    symbol = "erff" if kind == "float32" else "erf"
    if not lanes:
        return tirx.call_pure_extern(kind, symbol, x)
    numbers = range(int(lanes[1:]))
    each = [tirx.call_pure_extern(kind, symbol, tirx.Shuffle([x], [n])) for n in numbers]
    return tirx.Shuffle(each, list(numbers))


def _kind(x: Any) -> tuple[str, str]:
    """("float32", "x16") for an expression of float32x16."""
    kind, times, lanes = str(x.ty).partition("x")
    return kind, times + lanes


def _clipped(x: Any, low: float, high: float) -> Any:
    """With `x` as the second argument, what is not a number stays that."""
    from tvm import tirx

    lowest, highest = (tirx.const(bound, str(x.ty)) for bound in (low, high))
    return tirx.min(highest, tirx.max(lowest, x))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
