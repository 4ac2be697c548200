"""Operators of networks that were quantised in PyTorch (`torch.ops.quantized_decomposed`), as
`quantize` and `dequantize` around operators on floats: the graph pipeline makes integer programs of
these (`tunefleet.compiler.graph.quantized`).

torch multiplies by the inverse of a scale, in float32, where ONNX Runtime divides by the scale. So
a quantisation is written as that product, followed by `quantize` with the scale 1, which rounds,
adds the zero point and keeps to the limits.

Each conversion takes the translator, which knows the Relax of every operand, and the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import dtype_of
from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

_NAMESPACE = "quantized_decomposed"
#: By channels they are several.
_SINGULAR = {"scales": "scale", "zero_points": "zero_point"}
#: What a type can be made of and be turned back into without loss.
_WIDENED = frozenset({("float32", "float64"), ("int32", "int64")})


def is_dequantization(node: Node) -> bool:
    """Whether a node makes floats of integers. Of constants too that is left to the graph pipeline:
    no product of integers would come of weights that are floats already."""
    return str(node.target) in QUANTIZED and "dequantize" in str(node.target)


def decomposition(target: Any) -> Callable[..., Any] | None:
    """How torch itself computes one of these operators, where it has no conversion here."""
    if target.namespace != _NAMESPACE or str(target) in QUANTIZED:
        return None
    from torch.ao.quantization.fx import _decomposed

    function: Callable[..., Any] | None = getattr(_decomposed, target.overloadpacket.__name__, None)
    return function


def _arguments(node: Node) -> dict[str, Any]:
    """All arguments by their names, however they were given; there is an axis in any case."""
    target: Any = node.target
    named: dict[str, Any] = {"axis": 0}
    for place, declared in enumerate(target._schema.arguments):
        name = _SINGULAR.get(declared.name, declared.name)
        is_placed = place < len(node.args)
        default = node.kwargs.get(declared.name, declared.default_value)
        named[name] = node.args[place] if is_placed else default
    if named["axis"] < 0:
        named["axis"] += named["input"].meta["val"].dim()
    return named


def _quantized(t: Any, node: Node) -> Any:
    given, emit = _arguments(node), t.block_builder.emit
    axis, (scale, zero) = given["axis"], _parameters(t, given)
    if _is_between(zero):
        raise NotImplementedError("a zero point between two integers")
    x = _emitted_as(t, t.env[given["input"]], "float32")
    if isinstance(scale, np.ndarray):
        inverse = constant(_along((1.0 / scale).astype("float32"), x.ty.ndim, axis))
    else:
        inverse = emit(op.divide(relax.const(1, str(scale.ty.dtype)), scale))
        inverse = _emitted_as(t, inverse, "float32")
    x = _limited(t, given, emit(op.multiply(x, inverse)), zero, dtype_of(node))
    zero = constant(zero) if isinstance(zero, np.ndarray) else zero
    one = constant(np.asarray(1, "float32"))
    return emit(op.quantize(x, one, zero, axis=axis, out_dtype=dtype_of(node)))


def _limited(t: Any, given: dict[str, Any], x: Any, zero: Any, dtype: str) -> Any:
    """Floats that are to be rounded to integers within limits of their own."""
    of_type, emit, axis = np.iinfo(dtype), t.block_builder.emit, given["axis"]
    ends = (("quant_min", of_type.min, op.maximum), ("quant_max", of_type.max, op.minimum))
    for name, of_all, within in ends:
        limit = _number(t, given[name])
        if limit == of_all:
            continue
        if isinstance(zero, np.ndarray):
            bound = constant(_along((limit - zero).astype("float32"), x.ty.ndim, axis))
        else:
            bound = emit(op.subtract(relax.const(limit, "float32"), op.astype(zero, "float32")))
        x = emit(within(x, bound))
    return x


def _dequantized(t: Any, node: Node) -> Any:
    given = _arguments(node)
    axis, (scale, zero) = given["axis"], _parameters(t, given)
    if _is_between(zero):
        return _dequantized_between(t, node, scale, zero)
    if isinstance(scale, np.ndarray):
        scale = constant(scale.astype("float32"))
    else:
        scale = _emitted_as(t, scale, "float32")
    zero = constant(zero) if isinstance(zero, np.ndarray) else zero
    numbers = op.dequantize(t.env[given["input"]], scale, zero, axis=axis, out_dtype="float32")
    # In another type torch multiplies in float32 too, and rounds once.
    return _emitted_as(t, t.block_builder.emit(numbers), dtype_of(node))


def _is_between(zero: Any) -> bool:
    return isinstance(zero, np.ndarray) and zero.dtype.kind == "f"


def _dequantized_between(t: Any, node: Node, scale: Any, zero: Any) -> Any:
    """Integers around a number between two of them, as weights of embeddings are: in floats."""
    given, emit = _arguments(node), t.block_builder.emit
    x = _emitted_as(t, t.env[given["input"]], "float32")
    if not isinstance(scale, np.ndarray):
        raise NotImplementedError("a zero point between two integers and a scale that is computed")
    point, factor = (
        constant(_along(values.astype("float32"), x.ty.ndim, given["axis"]))
        for values in (zero, scale)
    )
    numbers = emit(op.multiply(emit(op.subtract(x, point)), factor))
    return _emitted_as(t, numbers, dtype_of(node))


def _parameters(t: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """Scale and zero point: arrays of float64 and int32 where they are known, with one axis or
    none, else expressions without axes. A zero point between two integers is one of float64."""
    scale, zero = (_parameter(t, given[name]) for name in ("scale", "zero_point"))
    if isinstance(scale, np.ndarray):
        scale = scale.astype("float64")
    if isinstance(zero, np.ndarray):
        whole = np.array_equal(zero, np.rint(zero))
        return scale, zero.astype("int32" if whole else "float64")
    return scale, _emitted_as(t, zero, "int32")


def _parameter(t: Any, given: Any) -> Any:
    if not isinstance(given, Node):
        return np.asarray(0 if given is None else given)
    expr = t.env[given]
    values = value_of(expr)
    if values is None:
        return _number_before(t, expr)
    return values.reshape(()) if values.size == 1 else values


def _number_before(t: Any, expr: Any) -> Any:
    """One number without axes, before torch made float64 or int64 and an axis of it: programs of
    products take it as it is then."""
    call: Any = t.block_builder.lookup_binding(expr) if isinstance(expr, relax.Var) else None
    name = getattr(getattr(call, "op", None), "name", "")
    if name == "relax.reshape":
        return _number_before(t, call.args[0])
    if name == "relax.astype" and (str(call.args[0].ty.dtype), str(call.ty.dtype)) in _WIDENED:
        return _number_before(t, call.args[0])
    return t.block_builder.emit(op.reshape(expr, [])) if expr.ty.ndim else expr


def _emitted_as(t: Any, expr: Any, dtype: str) -> Any:
    return expr if str(expr.ty.dtype) == dtype else t.block_builder.emit(op.astype(expr, dtype))


def _number(t: Any, given: Any) -> int:
    """A limit, which some overloads take as a tensor."""
    if not isinstance(given, Node):
        return int(given)
    value = value_of(t.env[given])
    if value is None:
        raise NotImplementedError("limits that depend on the data")
    return int(value.item())


def _along(values: Any, rank: int, axis: int) -> Any:
    """One number for each place of an axis, as they broadcast to a tensor."""
    return values.reshape([-1 if i == axis else 1 for i in range(rank)]) if values.ndim else values


def _chosen_parameters(t: Any, node: Node) -> Any:
    """The scale and the zero point of a tensor by its least and its largest number, 0 among them;
    torch has them as float64 and int64, with one axis."""
    given, emit = _arguments(node), t.block_builder.emit
    x = _emitted_as(t, t.env[given["input"]], "float32")
    least, most = given["quant_min"], given["quant_max"]
    eps, zero = relax.const(given["eps"], "float32"), relax.const(0, "float32")
    low, high = emit(op.minimum(op.min(x), zero)), emit(op.maximum(op.max(x), zero))
    if "symmetric" in str(node.target):
        width = emit(op.maximum(op.negative(low), high))
        scale = emit(op.divide(width, relax.const((most - least) / 2, "float32")))
        scale = emit(op.maximum(scale, eps))
        point = relax.const(128 if given["dtype"] is torch.uint8 else 0, "int32")
    else:
        width = emit(op.subtract(high, low))
        scale = emit(op.divide(width, relax.const(most - least, "float32")))
        scale = emit(op.maximum(scale, eps))
        steps = emit(op.astype(op.round(op.divide(low, scale)), "int32"))
        ends = (relax.const(end, "int32") for end in (least, most))
        point = emit(op.subtract(relax.const(least, "int32"), steps))
        for within, end in zip((op.maximum, op.minimum), ends, strict=True):
            point = emit(within(point, end))
    wide = ((scale, "float64"), (point, "int64"))
    return [emit(op.reshape(emit(op.astype(each, dtype)), [1])) for each, dtype in wide]


def integer_product(t: Any, node: Node) -> Any:
    """The product of 8-bit integers as int32, in the form that the graph pipeline looks for."""
    left, right = (t.block_builder.emit(op.astype(t.env[a], "int32")) for a in node.args[:2])
    return t.block_builder.emit(op.matmul(left, right))


#: By the name of the operator with its namespace: ATen has others of these names.
QUANTIZED: dict[str, Callable[[Any, Node], Any]] = {
    **{
        f"{_NAMESPACE}.{name}_per_tensor.{overload}": convert
        for name, convert in (("quantize", _quantized), ("dequantize", _dequantized))
        for overload in ("default", "tensor", "tensor2")
    },
    f"{_NAMESPACE}.quantize_per_channel.default": _quantized,
    f"{_NAMESPACE}.dequantize_per_channel.default": _dequantized,
    f"{_NAMESPACE}.choose_qparams.tensor": _chosen_parameters,
    f"{_NAMESPACE}.choose_qparams_symmetric.tensor": _chosen_parameters,
}
