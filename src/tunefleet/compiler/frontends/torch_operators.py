"""Conversions of torch operators that TVM lacks, or converts to something else than torch means.

Each takes the translator, which knows the Relax of every operand, and the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from tunefleet.compiler.frontends.torch_distances import DISTANCES
from tunefleet.compiler.frontends.torch_elementwise import ELEMENTWISE
from tunefleet.compiler.frontends.torch_experts import EXPERTS
from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of, shape_of
from tunefleet.compiler.frontends.torch_pooling import POOLING
from tunefleet.compiler.frontends.torch_quantized import QUANTIZED, integer_product
from tunefleet.compiler.frontends.torch_recurrent import RECURRENT_RULES
from tunefleet.compiler.frontends.torch_resizing import RESIZING
from tunefleet.compiler.frontends.torch_scattering import SCATTERING
from tunefleet.compiler.frontends.torch_selecting import SELECTING
from tunefleet.compiler.frontends.torch_sorting import SORTING
from tunefleet.compiler.frontends.torch_special import SPECIAL
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

Conversion = Callable[[Any, Node], Any]

#: Batch, channels, and three axes.
_RANK_OF_VOLUMES = 5


def _matmul(t: Any, node: Node) -> Any:
    left, right = t.retrieve_args(node)[:2]
    return t.block_builder.emit(op.matmul(left, right))


def _convolution(t: Any, node: Node) -> Any:
    """In float32 whatever the operands are: torch rounds such sums once."""
    convert, dtype = t.convert_map["convolution.default"], dtype_of(node)
    if node.args[6] and len(shape_of(node)) == _RANK_OF_VOLUMES:
        convert = partial(_transposed_of_volumes, t)
    if dtype != "float16":
        return convert(node)
    own = {operand: t.env[operand] for operand in node.all_input_nodes}
    t.env.update({o: t.block_builder.emit(op.astype(x, "float32")) for o, x in own.items()})
    try:
        made = convert(node)
    finally:
        t.env.update(own)
    return t.block_builder.emit(op.astype(made, dtype))


def _transposed_of_volumes(t: Any, node: Node) -> Any:
    """A transposed convolution of three axes, which TVM converts of one and two alone."""
    x, weight, bias, stride, padding, dilation, _, extra, groups = t.retrieve_args(node)
    made = op.nn.conv3d_transpose(
        x,
        weight,
        strides=tuple(stride),
        padding=tuple(padding),
        output_padding=tuple(extra),
        dilation=tuple(dilation),
        groups=groups,
    )
    if bias is not None:
        made = op.add(t.block_builder.emit(made), op.reshape(bias, [1, -1, 1, 1, 1]))
    return t.block_builder.emit(made)


def _added_matmul(t: Any, node: Node) -> Any:
    """addmm and baddbmm: beta * input + alpha * (left @ right)."""
    bias, left, right = t.retrieve_args(node)[:3]
    product = t.block_builder.emit(op.matmul(left, right))
    for name, which in (("alpha", 0), ("beta", 1)):
        factor = node.kwargs.get(name, 1)
        if factor == 1:
            continue
        scale = relax.const(factor, dtype_of(node))
        if which:
            bias = t.block_builder.emit(op.multiply(bias, scale))
        else:
            product = t.block_builder.emit(op.multiply(product, scale))
    return t.block_builder.emit(op.add(product, bias))


def _reduced(function: Any) -> Conversion:
    """A reduction over given axes, or over all of them; a number is its own."""

    def convert(t: Any, node: Node) -> Any:
        x, axes = t.env[node.args[0]], argument(node, 1, "dim")
        if not x.ty.ndim:
            return x
        axes = (list(axes) or None) if isinstance(axes, tuple | list) else axes
        return t.block_builder.emit(function(x, axes, bool(argument(node, 2, "keepdim", False))))

    return convert


def _any_or_all(function: Any) -> Conversion:
    """`any` is the maximum of truths as numbers, `all` their minimum."""
    reduce = _reduced(lambda x, axes, keep: function(op.astype(x, "int8"), axes, keep))

    def convert(t: Any, node: Node) -> Any:
        if str(t.env[node.args[0]].ty.dtype) != "bool":
            zero = relax.const(0, str(t.env[node.args[0]].ty.dtype))
            truth = t.block_builder.emit(op.not_equal(t.env[node.args[0]], zero))
        else:
            truth = t.env[node.args[0]]
        before, t.env[node.args[0]] = t.env[node.args[0]], truth
        try:
            reduced = reduce(t, node)
        finally:
            t.env[node.args[0]] = before
        return t.block_builder.emit(op.astype(reduced, "bool"))

    return convert


def _extreme_with_index(extreme: Any, index: Any) -> Conversion:
    def convert(t: Any, node: Node) -> Any:
        x, axis = t.env[node.args[0]], node.args[1]
        keep = bool(argument(node, 2, "keepdim", False))
        if not x.ty.ndim:
            return [x, relax.const(0, "int64")]
        values = t.block_builder.emit(extreme(x, axis, keep))
        return [values, t.block_builder.emit(index(x, axis, keep))]

    return convert


def _variance(t: Any, node: Node) -> Any:
    """prims.var (x, dims, correction)."""
    x, axes = t.env[node.args[0]], sorted(int(a) for a in argument(node, 1, "dims"))
    return _corrected(t, x, axes, argument(node, 2, "correction", 1.0), keep=False)


def _variance_and_mean(t: Any, node: Node) -> list[Any]:
    """var_mean, whose correction is a number or whether there is one."""
    x = t.env[node.args[0]]
    axes = argument(node, 1, "dim") or list(range(x.ty.ndim))
    correction = argument(node, 2, "unbiased", node.kwargs.get("correction", 1))
    keep = bool(argument(node, 3, "keepdim", False))
    variance = _corrected(t, x, list(axes), 1 if correction is None else correction, keep=keep)
    return [variance, t.block_builder.emit(op.mean(x, list(axes), keep))]


def _corrected(t: Any, x: Any, axes: list[int], correction: Any, *, keep: bool) -> Any:
    """A variance that divides by the number of elements less the correction."""
    count = math.prod(int(x.ty.shape[axis]) for axis in axes)
    variance = t.block_builder.emit(op.variance(x, axes, keep))
    left = max(0.0, count - float(correction))
    factor = relax.const(count / left if left else math.inf, str(x.ty.dtype))
    return t.block_builder.emit(op.multiply(variance, factor)) if correction else variance


def _broadcast_in_dim(t: Any, node: Node) -> Any:
    """prims.broadcast_in_dim (x, shape, where the axes of x are in it)."""
    x, shape = t.env[node.args[0]], shape_of(node)
    places: Any = node.args[2]
    extents = [1] * len(shape)
    for axis, place in enumerate(places):
        extents[place] = int(x.ty.shape[axis])
    return t.block_builder.emit(op.broadcast_to(op.reshape(x, extents), shape))


def _mean_of_windows(name: str) -> Conversion:
    """avg_pool2d and avg_pool3d: TVM leaves out a divisor that is not the number of elements."""

    def convert(t: Any, node: Node) -> Any:
        convert_by_tvm = t.convert_map[name]
        divisor = argument(node, 6, "divisor_override")
        if divisor is None:
            return convert_by_tvm(node)
        if argument(node, 4, "ceil_mode", False):
            raise NotImplementedError("windows that go beyond the end, with a divisor")
        window: Any = node.args[1]
        rank = len(shape_of(node)) - 2
        size = math.prod(window) if len(window) == rank else int(window[0]) ** rank
        own = node.args
        node.args = (*own[:4], False, True)
        try:
            mean = convert_by_tvm(node)
        finally:
            node.args = own
        return t.block_builder.emit(op.multiply(mean, relax.const(size / divisor, dtype_of(node))))

    return convert


def _elementwise(function: Any) -> Conversion:
    def convert(t: Any, node: Node) -> Any:
        return t.block_builder.emit(function(*[_expr(t, a, node) for a in node.args]))

    return convert


def _expr(t: Any, arg: Any, node: Node) -> Any:
    return t.env[arg] if isinstance(arg, Node) else relax.const(arg, dtype_of(node))


def _arithmetic(function: Any, of_truths: Any = None) -> Conversion:
    """Of operands of two types, numbers among them, in torch's common type."""

    def convert(t: Any, node: Node) -> Any:
        dtype = dtype_of(node)
        left, right = (_cast(t, arg, dtype) for arg in node.args[:2])
        alpha = node.kwargs.get("alpha", 1)
        if alpha != 1:
            right = op.multiply(right, relax.const(alpha, dtype))
        chosen = of_truths if dtype == "bool" and of_truths is not None else function
        return t.block_builder.emit(chosen(left, right))

    return convert


def _quotient(left: Any, right: Any) -> Any:
    """TVM refuses to divide by a known zero; a product with its reciprocal is the same."""
    if hasattr(right, "value") and "float" in str(right.ty.dtype):
        divisor = right.value.numpy()
        if divisor.size == 1 and not divisor.any():
            infinite = np.copysign(np.inf, divisor).astype(divisor.dtype)
            return op.multiply(left, relax.const(infinite, str(right.ty.dtype)))
    return op.divide(left, right)


def _compared(function: Any) -> Conversion:
    def convert(t: Any, node: Node) -> Any:
        operands: Any = node.args[:2]
        left, right = (a.meta["val"] if isinstance(a, Node) else a for a in operands)
        dtype = str(torch.result_type(left, right)).removeprefix("torch.")
        return t.block_builder.emit(function(*(_cast(t, arg, dtype) for arg in node.args[:2])))

    return convert


def _cast(t: Any, arg: Any, dtype: str) -> Any:
    """A tensor or a number in a type."""
    if not isinstance(arg, Node):
        return relax.const(arg, dtype)
    value = t.env[arg]
    if str(value.ty.dtype) == dtype:
        return value
    return t.block_builder.emit(op.astype(value, dtype))


def _where(t: Any, node: Node) -> Any:
    """Branches of two types, numbers among them, take torch's common type."""
    condition, *branches = node.args
    cast = [_cast(t, branch, dtype_of(node)) for branch in branches]
    return t.block_builder.emit(op.where(_cast(t, condition, "bool"), *cast))


def _fill(t: Any, node: Node) -> Any:
    value = t.env[node.args[1]]
    cast = t.block_builder.emit(op.astype(value, dtype_of(node)))
    return t.block_builder.emit(op.broadcast_to(cast, [int(e) for e in node.meta["val"].shape]))


def _squeeze(t: Any, node: Node) -> Any:
    """With axes counted from the start: TVM's layout inference runs out of memory on others."""
    x = t.env[node.args[0]]
    extents = [int(e) for e in x.ty.shape]
    given = argument(node, 1, "dim", tuple(range(len(extents))))
    given = given if isinstance(given, tuple | list) else (given,)
    axes = sorted(a % len(extents) for a in given) if extents else []
    axes = [a for a in axes if extents[a] == 1]
    return t.block_builder.emit(op.squeeze(x, axes)) if axes else x


def _permute(t: Any, node: Node) -> Any:
    """With axes counted from the start: TVM's layout inference fails on others."""
    order: Any = argument(node, 1, "dims")
    axes = [int(axis) % len(order) for axis in order]
    return t.block_builder.emit(op.permute_dims(t.env[node.args[0]], axes))


def _rounded_quotient(t: Any, node: Node) -> Any:
    """floor_divide, and div with a rounding mode."""
    left, right = (_cast(t, arg, dtype_of(node)) for arg in node.args[:2])
    mode = node.kwargs.get("rounding_mode", "floor")
    if mode is None:
        return t.block_builder.emit(_quotient(left, right))
    if "int" in dtype_of(node):
        divide = op.floor_divide if mode == "floor" else op.divide
        return t.block_builder.emit(divide(left, right))
    rounded = op.floor if mode == "floor" else op.trunc
    return t.block_builder.emit(rounded(_quotient(left, right)))


def _reshape(t: Any, node: Node) -> Any:
    return t.block_builder.emit(op.reshape(t.env[node.args[0]], shape_of(node)))


_ARITHMETIC = {
    "add": _arithmetic(op.add, op.logical_or),
    "sub": _arithmetic(op.subtract),
    "mul": _arithmetic(op.multiply, op.logical_and),
    "div": _arithmetic(_quotient),
    "maximum": _arithmetic(op.maximum, op.logical_or),
    "minimum": _arithmetic(op.minimum, op.logical_and),
    "eq": _compared(op.equal),
    "ne": _compared(op.not_equal),
    "lt": _compared(op.less),
    "le": _compared(op.less_equal),
    "gt": _compared(op.greater),
    "ge": _compared(op.greater_equal),
    "where": _where,
}

_BATCH_NORM = "_native_batch_norm_legit_functional.default"
#: Its argument that says whether the statistics are those of the batch itself.
_TRAINING = 5


def _batch_norm(t: Any, node: Node) -> Any:
    """TVM takes the statistics that are stored, in training too. Torch writes that out."""
    if node.args[_TRAINING]:
        raise NotImplementedError("statistics of the batch itself")
    return t.convert_map[_BATCH_NORM](node)


#: By the name of the torch operator.
OPERATORS: dict[str, Conversion] = {
    # The overloads of aten, and `default` for the operators of prims.
    **{
        f"{name}.{overload}": convert
        for name, convert in _ARITHMETIC.items()
        for overload in ("Tensor", "Scalar", "default")
    },
    **RECURRENT_RULES,
    _BATCH_NORM: _batch_norm,
    "_int_mm.default": integer_product,
    "convolution.default": _convolution,
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "matmul.default": _matmul,
    "addmm.default": _added_matmul,
    "baddbmm.default": _added_matmul,
    "amax.default": _reduced(op.max),
    "amin.default": _reduced(op.min),
    "any.default": _any_or_all(op.max),
    "any.dim": _any_or_all(op.max),
    "any.dims": _any_or_all(op.max),
    "all.default": _any_or_all(op.min),
    "all.dim": _any_or_all(op.min),
    "all.dims": _any_or_all(op.min),
    "max.dim": _extreme_with_index(op.max, op.argmax),
    "min.dim": _extreme_with_index(op.min, op.argmin),
    "squeeze.default": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "permute.default": _permute,
    "where.self": _where,
    "where.ScalarOther": _where,
    "where.ScalarSelf": _where,
    "fill.Tensor": _fill,
    "avg_pool2d.default": _mean_of_windows("avg_pool2d.default"),
    "avg_pool3d.default": _mean_of_windows("avg_pool3d.default"),
    "broadcast_in_dim.default": _broadcast_in_dim,
    "convert_element_type.default": lambda t, node: _cast(t, node.args[0], dtype_of(node)),
    "var.default": _variance,
    "var_mean.correction": _variance_and_mean,
    "var_mean.dim": _variance_and_mean,
    "floor_divide.default": _rounded_quotient,
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    "_neg_view.default": _elementwise(op.negative),
    "_unsafe_view.default": _reshape,
    **DISTANCES,
    **ELEMENTWISE,
    **POOLING,
    **RESIZING,
    **SCATTERING,
    **SELECTING,
    **SORTING,
    **SPECIAL,
    "exp2.default": _elementwise(
        lambda x: op.exp(op.multiply(x, relax.const(0.6931471805599453, str(x.ty.dtype))))
    ),
}


#: Those that packages register, by their names with that of the package.
OF_PACKAGES: dict[str, Conversion] = QUANTIZED | EXPERTS


def conversion(target: Any) -> Conversion | None:
    """The conversion here of what a node calls, None where there is none."""
    return OF_PACKAGES.get(str(target)) or OPERATORS.get(getattr(target, "__name__", str(target)))
