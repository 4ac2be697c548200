"""From sums and real numbers to 8-bit integers, with the rounding of ONNX Runtime: in float32, to
the nearest integer, of two equally near ones the even one.

Where ONNX Runtime has a kernel for an operator between quantised tensors, its own order of
operations is kept, since another order decides some of the numbers that lie between two integers
the other way. The orders are those of its MLAS library (qladd.cpp, qlmul.cpp, qlgavgpool.cpp,
quantize.cpp), and tests compare all pairs of inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunefleet.compiler.graph.constants import constant
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import Affine, Array, Writer, number, relax

op = relax.op

#: No product of a scale and an integer is below.
_BELOW_ALL = -1e30


def rounded(writer: Writer, x: Any, zero: Any, dtype: str) -> Any:
    """Floats to the nearest integers, around `zero` and within the limits of `dtype`.

    `zero` is an array, or an expression of one int32 where it is known at run time only.
    """
    limits = np.iinfo(dtype)
    x = writer.emit(op.round(x))
    if not isinstance(zero, np.ndarray):
        x = writer.emit(op.add(x, writer.as_type(zero, "float32")))
    elif zero.any():
        x = writer.emit(op.add(x, constant(zero.astype("float32"))))
    x = writer.emit(op.maximum(x, number(limits.min, "float32")))
    x = writer.emit(op.minimum(x, number(limits.max, "float32")))
    return writer.as_type(x, dtype)


def quantized(writer: Writer, x: Any, scale: Any, zero: Any, dtype: str) -> Any:
    """Real numbers as integers: divided by the scale, as ONNX Runtime does, and rounded."""
    divisor = constant(scale) if isinstance(scale, np.ndarray) else scale
    return rounded(writer, writer.emit(op.divide(x, divisor)), zero, dtype)


def requantized(writer: Writer, value: Affine, scale: Array, zero: Array, dtype: str) -> Any:
    """Sums in int32 as 8-bit integers: multiplied by one float32, and rounded."""
    factor = (value.scale / scale).astype("float32")
    x = writer.emit(op.multiply(writer.as_type(value.q, "float32"), constant(factor)))
    return rounded(writer, x, zero, dtype)


def _apart(writer: Writer, product: Any) -> Any:
    """A product that is rounded before it is added to: LLVM makes one instruction with one rounding
    of a product and a sum where it sees both."""
    return writer.emit(op.maximum(product, number(_BELOW_ALL, "float32")))


def _add(
    writer: Writer, call: Any, parts: Sequence[Affine], scale: Array, zero: Array, dtype: str
) -> Any:
    """a * ratio + (b * ratio + constant), where the constant has all zero points."""
    left, right = parts
    ratios = [np.float32(part.scale / scale) for part in parts]
    moved = np.float32(
        np.float32(zero) - (ratios[0] * np.float32(left.zero) + ratios[1] * np.float32(right.zero))
    )
    products = [
        _apart(
            writer,
            writer.emit(op.multiply(writer.as_type(part.q, "float32"), number(ratio, "float32"))),
        )
        for part, ratio in zip(parts, ratios, strict=True)
    ]
    x = writer.emit(op.add(products[1], number(moved, "float32")))
    return rounded(writer, writer.emit(op.add(products[0], x)), np.zeros((), "int32"), dtype)


def _multiply(
    writer: Writer, call: Any, parts: Sequence[Affine], scale: Array, zero: Array, dtype: str
) -> Any:
    """(a - zero) * (b - zero) as an integer, times one float32; its zero point is added before it
    is rounded."""
    left, right = parts
    factor = np.float32(left.scale * right.scale) / np.float32(scale)
    wide = [
        writer.emit(op.subtract(writer.as_type(part.q, "int32"), constant(part.zero)))
        if part.zero.any()
        else writer.as_type(part.q, "int32")
        for part in parts
    ]
    sums = writer.as_type(writer.emit(op.multiply(*wide)), "float32")
    x = _apart(writer, writer.emit(op.multiply(sums, number(factor, "float32"))))
    x = writer.emit(op.add(x, constant(zero.astype("float32"))))
    return rounded(writer, x, np.zeros((), "int32"), dtype)


def _mean(
    writer: Writer, call: Any, parts: Sequence[Affine], scale: Array, zero: Array, dtype: str
) -> Any:
    """A global average: the sum of the integers, times one float32."""
    (value,) = parts
    rank = len(value.shape)
    axes = sorted(axis % rank for axis in ints(call.attrs.axis or range(rank)))
    if axes != list(range(2, rank)):
        return None
    count = int(np.prod([value.shape[axis] for axis in axes]))
    sums = op.sum(writer.as_type(value.q, "int32"), axes, bool(call.attrs.keepdims))
    sums = writer.emit(sums)
    if value.zero.any():
        sums = writer.emit(op.add(sums, constant(-value.zero * np.int32(count))))
    factor = np.float32(value.scale) / np.float32(scale * np.float32(count))
    x = writer.emit(op.multiply(writer.as_type(sums, "float32"), number(factor, "float32")))
    return rounded(writer, x, zero, dtype)


#: Operators between quantised tensors that ONNX Runtime has kernels for. Each takes the call, its
#: operands and the scale, zero point and type of the result; None for a form that it has not.
KERNELS: dict[str, Callable[[Writer, Any, Sequence[Affine], Array, Array, str], Any]] = {
    "relax.add": _add,
    "relax.mean": _mean,
    "relax.multiply": _multiply,
}
