"""The pass: one walk over a network that keeps quantised tensors as integers while it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.quantized.affine import (
    EIGHT_BITS,
    Affine,
    Array,
    CallWriter,
    Shifted,
    is_zero,
    number,
    relax,
    same_form,
    spread,
    tvm,
)
from tunefleet.compiler.graph.quantized.movement import moved, scales_moved
from tunefleet.compiler.graph.quantized.products import convolution, matmul
from tunefleet.compiler.graph.quantized.rounding import (
    KERNELS,
    KERNELS_IN_FLOATS,
    OutputQuantization,
    quantized,
    requantized,
)
from tunefleet.compiler.graph.rewriting import bindings_of, op_name, rewritten

op = relax.op

_TRIGGERS = frozenset({"relax.quantize", "relax.dequantize"})
_PRODUCTS = frozenset({"relax.matmul", "relax.nn.conv2d"})
#: The bias of a network is quantised by this product of scales, up to how it was rounded.
_SAME_SCALE = 1e-5
_ONE = np.ones((), "float32")


def prefers_unsigned(target: Any) -> bool:
    """Whether products of 8-bit integers are to take their first operand as uint8: x86 multiplies
    unsigned by signed bytes (vpdpbusd), ARM's sdot and CUDA's dp4a take signed ones."""
    names = {str(target.attrs.get("mtriple", "")).split("-")[0], *map(str, target.keys)}
    return bool(names & {"x86_64", "x86", "i686"}) or (
        str(target.kind.name) == "llvm" and not names & {"aarch64", "arm_cpu", "arm", "riscv64"}
    )


def integer_programs(mod: Any, *, unsigned: bool) -> Any:
    """`mod` (Relax, one function `main`) with products of quantised tensors as products of
    integers; as it is where it has none. `unsigned` as `prefers_unsigned`."""
    bindings = bindings_of(mod["main"])
    if bindings is None or not any(_is_quantized(each.value) for each in bindings):
        return mod
    rewrite = _Rewrite(unsigned)
    made = rewritten(mod, rewrite.writer.builder, bindings, rewrite.visit, rewrite.plain)
    return relax.transform.DeadCodeElimination()(made)


def _is_quantized(value: Any) -> bool:
    name = op_name(value)
    is_integer = isinstance(value.ty, relax.TensorType) and str(value.ty.dtype) == "int32"
    return name in _TRIGGERS or (name in _PRODUCTS and is_integer)


class _Rewrite:
    """What is known of each variable of the old function: an expression of the new one, a tensor
    kept as integers, or a tuple of either."""

    def __init__(self, unsigned: bool) -> None:
        self.writer = CallWriter()
        self.unsigned = unsigned
        self._known: dict[Any, Any] = {}
        self._plain: dict[Any, Any] = {}
        self._calls: dict[Any, Any] = {}

    def visit(self, var: Any, value: Any) -> None:
        self._calls[var] = value
        if isinstance(value, relax.TupleGetItem):
            fields = self._known.get(value.tuple_value)
            if isinstance(fields, list):
                self._known[var] = fields[int(value.index)]
                return
        name = op_name(value)
        rule = _RULES.get(name)
        result = rule(self, value) if rule else self._moved(name, value)
        if result is None:
            result = self.emitted(value)
        self._known[var] = result

    def emitted(self, value: Any) -> Any:
        """The expression itself, on plain operands."""
        value = self.plain(value)
        if isinstance(value, (relax.Var, tvm.ir.GenericConst, relax.Tuple)):
            return value
        return self.writer.emit(value)

    def plain(self, expr: Any) -> Any:
        """An expression of the new function: real numbers as floats, integers as they are."""
        if isinstance(expr, relax.Var):
            if expr not in self._plain:
                self._plain[expr] = self._written(self._known.get(expr, expr))
            return self._plain[expr]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.plain(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self.plain(expr.tuple_value), int(expr.index))
        if isinstance(expr, relax.Call):
            args = [self.plain(arg) for arg in expr.args]
            return relax.Call(expr.op, args, expr.attrs, expr.ty_args)
        return expr

    def _written(self, known: Any) -> Any:
        if isinstance(known, Affine):
            return self.writer.real(known)
        if isinstance(known, Shifted):
            wide = self.writer.as_type(known.q, "int16")
            wide = self.writer.emit(op.add(wide, number(known.offset, "int16")))
            return self.writer.as_type(wide, "int8" if known.offset < 0 else "uint8")
        if isinstance(known, list):
            return relax.Tuple([self._written(each) for each in known])
        return known

    def known(self, expr: Any) -> Any:
        """What is known of an operand: see the class."""
        return self._known.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def affine(self, expr: Any) -> Affine | None:
        """A tensor of real numbers that is kept as integers."""
        known = self.known(expr)
        return known if isinstance(known, Affine) else None

    def call_of(self, expr: Any) -> Any:
        """The call that a variable of the old function is bound to."""
        return self._calls.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def _moved(self, name: str, call: Any) -> Any:
        """A movement of integers, whose scale and zero point stay."""
        if not name or not call.args:
            return None
        known = self.known(call.args[0])
        others = [self.plain(arg) for arg in call.args[1:]] if len(call.args) > 1 else []
        if isinstance(known, Shifted):
            stand_in = Affine(known.q, _ONE, np.zeros((), "int32"))
            result = moved(name, call, stand_in, others)
            return None if result is None else Shifted(self.writer.emit(result), known.offset)
        if not isinstance(known, Affine):
            return None
        result = moved(name, call, known, others)
        scales = None if result is None else scales_moved(name, call, known)
        if scales is None:
            return None
        scale, zero = scales
        return replace(known, q=self.writer.emit(result), scale=scale, zero=zero)


def _array(expr: Any) -> Array | None:
    value = value_of(expr)
    return None if value is None else np.array(value)


def _dequantize(rewrite: _Rewrite, call: Any) -> Any:
    x = rewrite.known(call.args[0])
    scale, zero = (_array(rewrite.plain(arg)) for arg in call.args[1:3])
    if str(call.ty.dtype) != "float32" or isinstance(x, Affine):
        return None
    offset = 0
    if isinstance(x, Shifted):
        x, offset = x.q, -x.offset
    if scale is None or zero is None or scale.dtype != "float32":
        return _dequantize_by_values(rewrite, call, x, offset)
    rank, axis = call.ty.ndim, int(call.attrs.axis)
    return Affine(
        x,
        spread(scale, rank, axis),
        spread(zero.astype("int32") + np.int32(offset), rank, axis),
        -offset,
    )


def _dequantize_by_values(rewrite: _Rewrite, call: Any, x: Any, offset: int) -> Any:
    """Integers `x` less `offset` whose scale and zero point follow from the data: one of each, or
    real numbers at once."""
    writer = rewrite.writer
    scale, zero = (rewrite.plain(arg) for arg in call.args[1:3])
    if _is_one(scale) and _is_one(zero) and str(x.ty.dtype) in EIGHT_BITS:
        zero = writer.as_type(_without_axes(writer, zero), "int32")
        if offset:
            zero = writer.emit(op.add(zero, number(offset, "int32")))
        factor = writer.as_type(_without_axes(writer, scale), "float32")
        return Affine(x, _ONE, zero, -offset, factor=factor)
    wide = writer.as_type(rewrite.plain(call.args[0]), "float32")
    difference = writer.emit(op.subtract(wide, writer.as_type(zero, "float32")))
    return writer.emit(op.multiply(difference, scale))


def _without_axes(writer: CallWriter, expr: Any) -> Any:
    return writer.emit(op.reshape(expr, [])) if expr.ty.ndim else expr


def _is_one(expr: Any) -> bool:
    return all(int(extent) == 1 for extent in expr.ty.shape.values)


def _quantize(rewrite: _Rewrite, call: Any) -> Any:
    writer, dtype = rewrite.writer, str(call.ty.dtype)
    scale, zero = (rewrite.plain(arg) for arg in call.args[1:3])
    known_scale, known_zero = _array(scale), _array(zero)
    if dtype not in EIGHT_BITS and dtype not in ("int16", "uint16"):
        return None
    if known_scale is None or known_zero is None:
        if not _is_one(scale):
            return None
        by = scale if known_scale is None else known_scale
        to = OutputQuantization(by, writer.as_type(zero, "int32"), dtype)
        return quantized(writer, rewrite.plain(call.args[0]), to)
    rank, axis = call.ty.ndim, int(call.attrs.axis)
    points: Array = spread(known_zero.astype("int32"), rank, axis)
    scales = spread(known_scale.astype("float32"), rank, axis)
    offset, kept = 0, dtype
    if dtype in EIGHT_BITS and dtype != ("uint8" if rewrite.unsigned else "int8"):
        offset = -128 if rewrite.unsigned else 128
        kept = "uint8" if rewrite.unsigned else "int8"
        points = np.asarray(points - np.int32(offset))
    real, to = _by_inverse(rewrite, call.args[0], OutputQuantization(scales, points, kept, offset))
    q = _integers(rewrite, real, to)
    return Shifted(q, offset) if offset else q


def _by_inverse(
    rewrite: _Rewrite, expr: Any, to: OutputQuantization
) -> tuple[Any, OutputQuantization]:
    """What is quantised, and how. PyTorch's way comes as a product by the inverse of the scale that
    is quantised with the scale 1."""
    product = rewrite.call_of(expr)
    if op_name(product) != "relax.multiply" or not np.all(to.scale == 1):
        return expr, to
    inverse = value_of(product.args[1])
    if inverse is None or inverse.ndim not in (0, expr.ty.ndim) or not np.all(inverse > 0):
        return expr, to
    return product.args[0], replace(to, scale=1 / inverse, inverse=inverse)


def _integers(rewrite: _Rewrite, real: Any, to: OutputQuantization) -> Any:
    """The integers of a quantisation of `real`, by the shortest way that gives those of the
    network's framework."""
    writer, scale, zero, dtype = rewrite.writer, to.scale, to.zero, to.dtype
    x = rewrite.affine(real)
    if x is not None and x.known:
        if x.dtype == dtype and same_form(x, Affine(x.q, scale, zero)):
            return x.q
        if x.dtype == "int32" and is_zero(x.zero) and not scale.ndim:
            return requantized(writer, x, to)
    inner = rewrite.call_of(real)
    kernel = (KERNELS if to.inverse is None else KERNELS_IN_FLOATS).get(op_name(inner))
    if kernel is not None and not scale.ndim:
        of = list(inner.args) if op_name(inner) != "relax.mean" else [inner.args[0]]
        parts = [rewrite.affine(arg) for arg in of]
        if all(p is not None and p.by_tensor and p.known and p.dtype in EIGHT_BITS for p in parts):
            q = kernel(writer, inner, [p for p in parts if p is not None], to)
            if q is not None:
                return q
    if op_name(inner) == "relax.concat" and isinstance(inner.args[0], relax.Tuple):
        parts = [rewrite.affine(field) for field in inner.args[0].fields]
        if all(p is not None and p.dtype in EIGHT_BITS for p in parts) and not scale.ndim:
            pieces = [
                part.q
                if part.dtype == dtype and same_form(part, Affine(part.q, scale, zero))
                else quantized(writer, writer.real(part), to)
                for part in parts
                if part is not None
            ]
            return writer.emit(op.concat(pieces, int(inner.attrs.axis)))
    return quantized(writer, rewrite.plain(real), to)


def _product(rewrite: _Rewrite, call: Any) -> Any:
    integers = str(call.ty.dtype) == "int32"
    operand = _widened if integers else _Rewrite.affine
    left, right = (operand(rewrite, arg) for arg in call.args[:2])
    if left is None or right is None:
        return None
    writer, unsigned = rewrite.writer, rewrite.unsigned
    if op_name(call) == "relax.matmul":
        product = matmul(writer, left, right, unsigned=unsigned)
    else:
        product = convolution(writer, call, left, right, unsigned=unsigned)
    return product.q if product is not None and integers else product


def _widened(rewrite: _Rewrite, expr: Any) -> Affine | None:
    """An operand of a product of int32 that is 8-bit integers less a zero point."""
    zero: Any = np.zeros((), "int32")
    call = rewrite.call_of(expr)
    if op_name(call) == "relax.subtract":
        at = rewrite.plain(call.args[1])
        known = _array(at)
        zero = at if known is None else known.astype("int32")
        call = rewrite.call_of(call.args[0])
        if str(at.ty.dtype) != "int32" or (known is None and at.ty.ndim):
            return None
        if known is not None and known.size == 1:
            zero = zero.reshape(())
    values = _array(rewrite.plain(call) if isinstance(call, relax.Var) else call)
    if values is not None:
        return _narrow(rewrite, values, zero)
    if op_name(call) == "relax.astype":
        call = call.args[0]
    x = rewrite.known(call)
    if isinstance(x, Shifted):
        if not isinstance(zero, np.ndarray):
            return None
        x, zero = x.q, np.asarray(zero - np.int32(x.offset))
    is_tensor = isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType)
    return Affine(x, _ONE, zero) if is_tensor and str(x.ty.dtype) in EIGHT_BITS else None


def _narrow(rewrite: _Rewrite, values: Array, zero: Any) -> Affine | None:
    """Constant integers in 8 bits, if they have no more."""
    for dtype in sorted(EIGHT_BITS):
        limits = np.iinfo(dtype)
        if values.size and limits.min <= values.min() and values.max() <= limits.max:
            q = rewrite.writer.builder.normalize(constant(values.astype(dtype)))
            return Affine(q, _ONE, zero)
    return None


def _add(rewrite: _Rewrite, call: Any) -> Any:
    """Sums and a bias that was quantised by their scale."""
    left, right = (rewrite.affine(arg) for arg in call.args)
    if left is None or right is None or {left.dtype, right.dtype} != {"int32"}:
        return None
    if not (left.known and right.known and is_zero(left.zero) and is_zero(right.zero)):
        return None
    if value_of(left.q) is not None:
        left, right = right, left
    if value_of(right.q) is None or len(right.shape) > len(left.shape):
        return None
    close = np.allclose(left.scale, right.scale, rtol=_SAME_SCALE, atol=0)
    return left.with_q(rewrite.writer.emit(op.add(left.q, right.q))) if close else None


def _relu(rewrite: _Rewrite, call: Any) -> Any:
    """The larger of the integers and of the zero point."""
    x = rewrite.affine(call.args[0])
    if x is None or not isinstance(x.zero, np.ndarray):
        return None
    limits = np.iinfo(x.dtype)
    if x.zero.min() < limits.min or x.zero.max() > limits.max:
        return None
    least = constant(x.zero.astype(x.dtype))
    return x.with_q(rewrite.writer.emit(op.maximum(x.q, least)))


def _split(rewrite: _Rewrite, call: Any) -> Any:
    x = rewrite.affine(call.args[0])
    if x is None or not x.by_tensor:
        return None
    whole = rewrite.writer.emit(relax.Call(call.op, [x.q, *call.args[1:]], call.attrs))
    count = len(call.ty.fields)
    fields = [rewrite.writer.emit(relax.TupleGetItem(whole, index)) for index in range(count)]
    return [x.with_q(field) for field in fields]


_RULES: dict[str, Callable[[_Rewrite, Any], Any]] = {
    "relax.add": _add,
    "relax.dequantize": _dequantize,
    "relax.matmul": _product,
    "relax.nn.conv2d": _product,
    "relax.nn.relu": _relu,
    "relax.quantize": _quantize,
    "relax.split": _split,
}
