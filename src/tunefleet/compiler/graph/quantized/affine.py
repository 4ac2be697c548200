"""Tensors of real numbers that are kept as integers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import fold, ints
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax
op = relax.op

Array = NDArray[Any]
EIGHT_BITS = frozenset({"int8", "uint8"})
#: Scales that differ by so little give the same integers: less than half a step of any 16 bits.
_EQUAL_SCALES = 1e-6


@dataclass(frozen=True)
class Affine:
    """The real numbers `scale * (q - zero)`, times `factor` where there is one.

    `q` is a Relax expression of integers. `scale` is float32, `zero` int32, each either a number
    (no axes) or an array of the rank of `q` that broadcasts to it. Where a zero point is known at
    run time only, `zero` is a Relax expression of one int32; a scale that is comes as `factor`, an
    expression of one float32. The network itself has `q + offset` for these numbers: 8-bit integers
    of the other sign.
    """

    q: Any
    scale: Array
    zero: Any
    offset: int = 0
    factor: Any = None

    def __post_init__(self) -> None:
        # NumPy makes numbers of sums and products of arrays without axes.
        object.__setattr__(self, "scale", np.asarray(self.scale, "float32"))
        if isinstance(self.zero, np.generic):
            object.__setattr__(self, "zero", np.asarray(self.zero))

    @property
    def dtype(self) -> str:
        return str(self.q.ty.dtype)

    @property
    def shape(self) -> list[int]:
        return ints(self.q.ty.shape.values)

    @property
    def by_tensor(self) -> bool:
        """Whether one scale and one zero point hold for all of it."""
        one_zero = not isinstance(self.zero, np.ndarray) or self.zero.ndim == 0
        return self.scale.ndim == 0 and one_zero

    @property
    def known(self) -> bool:
        """Whether scale and zero point are known before the network runs."""
        return isinstance(self.zero, np.ndarray) and self.factor is None

    def with_q(self, q: Any) -> Affine:
        """Other integers by the same scale and zero point."""
        return replace(self, q=q)


@dataclass(frozen=True)
class Shifted:
    """8-bit integers that are kept with the other sign: they are `q + offset`."""

    q: Any
    offset: int


def number(value: Any, dtype: str) -> Any:
    """A constant without axes, which becomes a part of the program."""
    return constant(np.asarray(value, dtype))


def parameter(values: Any, like: Any, dtype: str = "float32") -> Any:
    """A constant that broadcasts to a tensor and has its rank: an argument of the program, so that
    layers that differ by it alone are one task."""
    array = np.asarray(values, dtype)
    rank = int(like.ty.ndim)
    return constant(array.reshape([1] * (rank - array.ndim) + list(array.shape)))


class CallWriter:
    """Emits calls; those on constants are evaluated."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()

    def emit(self, call: Any) -> Any:
        if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
            folded = fold(str(call.op.name), call)
            if folded is not None:
                return self.builder.normalize(folded)
        return self.builder.emit(call)

    def as_type(self, x: Any, dtype: str) -> Any:
        return x if str(x.ty.dtype) == dtype else self.emit(op.astype(x, dtype))

    def real(self, value: Affine) -> Any:
        """The real numbers, as float32."""
        if value_of(value.q) is None and value.dtype == "int32" and not is_zero(value.zero):
            # Sums may need more digits than float32 has.
            x = self.as_type(self.emit(op.subtract(value.q, self.zero(value.zero))), "float32")
        else:
            x = self.as_type(value.q, "float32")
            if not is_zero(value.zero):
                known = isinstance(value.zero, np.ndarray)
                zero = parameter(value.zero, x) if known else self.as_type(value.zero, "float32")
                x = self.emit(op.subtract(x, zero))
        if not np.all(value.scale == 1):
            x = self.emit(op.multiply(x, parameter(value.scale, x)))
        return x if value.factor is None else self.emit(op.multiply(x, value.factor))

    def factor(self, left: Affine, right: Affine) -> Any:
        """What a product of two is multiplied by, apart from the scales that are known."""
        factors = [side.factor for side in (left, right) if side.factor is not None]
        if len(factors) == 2:
            return self.emit(op.multiply(*factors))
        return factors[0] if factors else None

    def zero(self, zero: Any) -> Any:
        """A zero point as an expression of int32."""
        known = isinstance(zero, np.ndarray)
        return self.builder.normalize(constant(zero.astype("int32"))) if known else zero

    def with_sign(self, value: Affine, dtype: str) -> Affine:
        """The same numbers in 8-bit integers of the other sign, if they are not of `dtype`."""
        if value.dtype == dtype:
            return value
        offset = -128 if dtype == "int8" else 128
        wide = self.emit(op.add(self.as_type(value.q, "int16"), number(offset, "int16")))
        zero = value.zero
        if isinstance(zero, np.ndarray):
            zero = zero + np.int32(offset)
        else:
            zero = self.emit(op.add(zero, number(offset, "int32")))
        return replace(value, q=self.as_type(wide, dtype), zero=zero, offset=0)


def is_zero(zero: Any) -> bool:
    """Whether a zero point is known to be 0."""
    return isinstance(zero, np.ndarray) and not zero.any()


def spread(values: Array, rank: int, axis: int) -> Array:
    """One number for all, or one for each place of an axis, as `Affine` has them."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * rank
    shape[axis % rank] = -1
    return values.reshape(shape)


def same_form(a: Affine, b: Affine) -> bool:
    """Whether equal integers of both are equal numbers, up to how the scales were rounded."""
    return (
        a.known
        and b.known
        and a.dtype == b.dtype
        and a.scale.shape == b.scale.shape
        and np.allclose(a.scale, b.scale, rtol=_EQUAL_SCALES, atol=0)
        and np.array_equal(a.zero, b.zero)
    )
