"""From sums and real numbers to 8-bit integers, with the rounding of ONNX Runtime and PyTorch: in
float32, to the nearest integer, of two equally near ones the even one. ONNX Runtime divides by the
scale before, PyTorch multiplies by its inverse.

Where ONNX Runtime has a kernel for an operator between quantised tensors, its own order of
operations is kept, since another order decides some of the numbers that lie between two integers
the other way. The orders are those of its MLAS library (qladd.cpp, qlmul.cpp, qlgavgpool.cpp,
quantize.cpp), and tests compare all pairs of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import (
    Affine,
    Array,
    CallWriter,
    number,
    parameter,
    relax,
)

op = relax.op

#: No finite product of a scale and an integer is below: those of masks are as large as floats go.
_BELOW_ALL = float(np.finfo("float32").min)


def rounded(writer: CallWriter, x: Any, zero: Any, dtype: str) -> Any:
    """Floats to the nearest integers, around `zero` and within the limits of `dtype`.

    `zero` is an array, or an expression of one int32 where it is known at run time only.
    """
    limits = np.iinfo(dtype)
    x = writer.emit(op.round(x))
    if not isinstance(zero, np.ndarray):
        x = writer.emit(op.add(x, writer.as_type(zero, "float32")))
    elif zero.any():
        x = writer.emit(op.add(x, parameter(zero, x)))
    x = writer.emit(op.maximum(x, number(limits.min, "float32")))
    x = writer.emit(op.minimum(x, number(limits.max, "float32")))
    return writer.as_type(x, dtype)


def quantized(writer: CallWriter, x: Any, to: OutputQuantization) -> Any:
    """Real numbers as integers: divided by the scale, or multiplied by its inverse, and rounded."""
    if to.inverse is not None:
        x = writer.emit(op.multiply(x, parameter(to.inverse, x)))
    elif not isinstance(to.scale, np.ndarray):
        x = writer.emit(op.divide(x, to.scale))
    elif not np.all(to.scale == 1):
        x = writer.emit(op.divide(x, parameter(to.scale, x)))
    return rounded(writer, x, to.zero, to.dtype)


def requantized(writer: CallWriter, value: Affine, to: OutputQuantization) -> Any:
    """Sums in int32 as 8-bit integers: multiplied by one float32, and rounded."""
    x = writer.as_type(value.q, "float32")
    x = writer.emit(op.multiply(x, parameter(value.scale / to.scale, x)))
    return rounded(writer, x, to.zero, to.dtype)


def _apart(writer: CallWriter, product: Any) -> Any:
    """A product that is rounded before it is added to: LLVM makes one instruction with one rounding
    of a product and a sum where it sees both, which neither framework does here."""
    return writer.emit(op.maximum(product, number(_BELOW_ALL, "float32")))


@dataclass(frozen=True)
class OutputQuantization:
    """The scale, the zero point and the type of 8-bit integers that an operator gives. The network
    itself has `q + offset` for them. Scale and zero point are expressions of one number where they
    are known at run time only. Numbers are multiplied by `inverse` where there is one, as in
    PyTorch, else divided by the scale."""

    scale: Any
    zero: Any
    dtype: str
    offset: int = 0
    inverse: Array | None = None

    @property
    def own_zero(self) -> np.float32:
        """The zero point that the network has."""
        return np.float32(self.zero + self.offset)


def _own(writer: CallWriter, part: Affine) -> tuple[Any, np.float32]:
    """The integers that the network has, as floats, and their zero point."""
    x = writer.as_type(part.q, "float32")
    if part.offset:
        x = writer.emit(op.add(x, parameter(part.offset, x)))
    return x, np.float32(part.zero + part.offset)


def _add(writer: CallWriter, call: Any, parts: Sequence[Affine], to: OutputQuantization) -> Any:
    """a * ratio + (b * ratio + constant), where the constant has all zero points. A product and a
    sum are one instruction with one rounding there; `programs.with_programs` makes that of what
    is written here."""
    ratios = [np.float32(part.scale / to.scale) for part in parts]
    (left, left_zero), (right, right_zero) = (_own(writer, part) for part in parts)
    # In float64, which holds the product: rounded once, as there.
    points = np.float64(ratios[0]) * left_zero + np.float32(ratios[1] * right_zero)
    x = parameter(to.own_zero - np.float32(points), right)
    for q, ratio in ((right, ratios[1]), (left, ratios[0])):
        x = writer.emit(op.add(writer.emit(op.multiply(q, parameter(ratio, q))), x))
    return rounded(writer, x, np.asarray(-to.offset), to.dtype)


def _multiply(
    writer: CallWriter, call: Any, parts: Sequence[Affine], to: OutputQuantization
) -> Any:
    """(a - zero) * (b - zero) as an integer, times one float32; the zero point of the result is
    added before it is rounded."""
    left, right = parts
    factor = np.float32(left.scale * right.scale) / np.float32(to.scale)
    wide = []
    for part in parts:
        q = writer.as_type(part.q, "int32")
        wide.append(writer.emit(op.subtract(q, parameter(part.zero, q, "int32"))))
    x = writer.as_type(writer.emit(op.multiply(*wide)), "float32")
    x = _apart(writer, writer.emit(op.multiply(x, parameter(factor, x))))
    x = writer.emit(op.add(x, parameter(to.own_zero, x)))
    return rounded(writer, x, np.asarray(-to.offset), to.dtype)


def _mean(writer: CallWriter, call: Any, parts: Sequence[Affine], to: OutputQuantization) -> Any:
    """A global average: the sum of the integers, times one float32."""
    (value,) = parts
    rank = len(value.shape)
    axes = sorted(axis % rank for axis in ints(call.attrs.axis or range(rank)))
    if axes != list(range(2, rank)):
        return None
    count = int(np.prod([value.shape[axis] for axis in axes]))
    sums = op.sum(writer.as_type(value.q, "int32"), axes, bool(call.attrs.keepdims))
    sums = writer.emit(sums)
    sums = writer.emit(op.add(sums, parameter(-value.zero * np.int32(count), sums, "int32")))
    factor = np.float32(value.scale) / np.float32(to.scale * np.float32(count))
    x = writer.as_type(sums, "float32")
    x = writer.emit(op.multiply(x, parameter(factor, x)))
    return rounded(writer, x, to.zero, to.dtype)


def _sum(writer: CallWriter, call: Any, parts: Sequence[Affine], to: OutputQuantization) -> Any:
    """The sum of real numbers that were rounded to float32 each."""
    left, right = (_apart(writer, writer.real(part)) for part in parts)
    return quantized(writer, writer.emit(op.add(left, right)), to)


#: Operators between quantised tensors that ONNX Runtime has kernels for; None for a form that it
#: has not.
KERNELS: dict[str, Callable[[CallWriter, Any, Sequence[Affine], OutputQuantization], Any]] = {
    "relax.add": _add,
    "relax.mean": _mean,
    "relax.multiply": _multiply,
}
#: Those of PyTorch, which computes in floats, where that needs more than the operators themselves.
KERNELS_IN_FLOATS: dict[
    str, Callable[[CallWriter, Any, Sequence[Affine], OutputQuantization], Any]
] = {
    "relax.add": _sum,
}
