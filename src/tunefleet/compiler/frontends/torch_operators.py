"""Conversions of torch operators that TVM lacks, or converts to something else than torch means.

Each takes the translator, which knows the Relax of every operand, and the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tunefleet.compiler.frontends.torch_nodes import argument, dtype_of, shape_of
from tunefleet.compiler.frontends.torch_quantized import QUANTIZED, integer_product
from tunefleet.compiler.frontends.torch_recurrent import RECURRENT_RULES
from tunefleet.compiler.frontends.torch_selecting import SELECTING
from tunefleet.compiler.frontends.torch_sorting import SORTING
from tunefleet.compiler.toolchain import load_tvm

relax = load_tvm().relax
op = relax.op

Operator = Callable[[Any, Node], Any]


def _matmul(t: Any, node: Node) -> Any:
    left, right = t.retrieve_args(node)[:2]
    return t.block_builder.emit(op.matmul(left, right))


def _convolution(t: Any, node: Node) -> Any:
    """TVM's own, which sums in float32 whatever the operands are: torch rounds such sums once."""
    convert, dtype = t.convert_map["convolution.default"], dtype_of(node)
    if dtype != "float16":
        return convert(node)
    own = {operand: t.env[operand] for operand in node.all_input_nodes}
    t.env.update({o: t.block_builder.emit(op.astype(x, "float32")) for o, x in own.items()})
    try:
        made = convert(node)
    finally:
        t.env.update(own)
    return t.block_builder.emit(op.astype(made, dtype))


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


def _reduced(function: Any) -> Operator:
    """A reduction over given axes, or over all of them."""

    def convert(t: Any, node: Node) -> Any:
        axes = argument(node, 1, "dim")
        axes = list(axes) if isinstance(axes, tuple | list) else axes
        keep = bool(argument(node, 2, "keepdim", False))
        return t.block_builder.emit(function(t.env[node.args[0]], axes or None, keep))

    def single(t: Any, node: Node) -> Any:
        axes = argument(node, 1, "dim")
        if axes == 0:
            keep = bool(argument(node, 2, "keepdim", False))
            return t.block_builder.emit(function(t.env[node.args[0]], 0, keep))
        return convert(t, node)

    return single


def _any_or_all(function: Any) -> Operator:
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


def _extreme_with_index(extreme: Any, index: Any) -> Operator:
    def convert(t: Any, node: Node) -> Any:
        x, axis = t.env[node.args[0]], node.args[1]
        keep = bool(argument(node, 2, "keepdim", False))
        values = t.block_builder.emit(extreme(x, axis, keep))
        return [values, t.block_builder.emit(index(x, axis, keep))]

    return convert


def _scatter(reduction: str) -> Operator:
    def convert(t: Any, node: Node) -> Any:
        x, axis, index, source = t.retrieve_args(node)[:4]
        extents = [int(e) for e in index.ty.shape]
        if [int(e) for e in source.ty.shape] != extents:
            # Torch reads as much of the source as the index covers.
            axes = list(range(len(extents)))
            source = t.block_builder.emit(
                op.strided_slice(source, axes, [0] * len(extents), extents)
            )
        return t.block_builder.emit(op.scatter_elements(x, index, source, axis, reduction))

    return convert


def _resize(method: str) -> Operator:
    """upsample_*: torch's nearest takes the pixel at floor(i * scale)."""

    def convert(t: Any, node: Node) -> Any:
        x, size = t.env[node.args[0]], [int(e) for e in node.meta["val"].shape[2:]]
        if method == "nearest_neighbor":
            mode, rounding = "asymmetric", "floor"
        else:
            aligned = bool(argument(node, 2, "align_corners", False))
            mode, rounding = ("align_corners" if aligned else "half_pixel"), ""
        _check_scales(t, node, size)
        return t.block_builder.emit(
            op.image.resize2d(
                x,
                tuple(size),
                layout="NCHW",
                method=method,
                coordinate_transformation_mode=mode,
                rounding_method=rounding,
                cubic_alpha=-0.75,
            )
        )

    return convert


def _check_scales(t: Any, node: Node, size: list[int]) -> None:
    """Raises where torch would use the scale itself, which is not the quotient of the sizes."""
    scales: list[Any] = [a for a in node.args[2:] if isinstance(a, float)]
    scales += [s for a in node.args[2:] if isinstance(a, tuple | list) for s in a]
    extents = [int(e) for e in t.env[node.args[0]].ty.shape][2:]
    for scale, before, after in zip(scales, extents, size, strict=False):
        if scale is not None and abs(before * scale - after) > 1e-6 * after:
            raise ValueError(f"a scale of {scale} from {before} to {after} pixels")


def _elementwise(function: Any) -> Operator:
    def convert(t: Any, node: Node) -> Any:
        return t.block_builder.emit(function(*[_expr(t, a, node) for a in node.args]))

    return convert


def _expr(t: Any, arg: Any, node: Node) -> Any:
    return t.env[arg] if isinstance(arg, Node) else relax.const(arg, dtype_of(node))


def _arithmetic(function: Any, of_truths: Any = None) -> Operator:
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


def _compared(function: Any) -> Operator:
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


def _rounded_quotient(t: Any, node: Node) -> Any:
    """floor_divide, and div with a rounding mode."""
    left, right = (_cast(t, arg, dtype_of(node)) for arg in node.args[:2])
    mode = node.kwargs.get("rounding_mode", "floor")
    if mode is None:
        return t.block_builder.emit(op.divide(left, right))
    if "int" in dtype_of(node):
        divide = op.floor_divide if mode == "floor" else op.divide
        return t.block_builder.emit(divide(left, right))
    rounded = op.floor if mode == "floor" else op.trunc
    return t.block_builder.emit(rounded(op.divide(left, right)))


def _reshape(t: Any, node: Node) -> Any:
    return t.block_builder.emit(op.reshape(t.env[node.args[0]], shape_of(node)))


_ARITHMETIC = {
    "add": _arithmetic(op.add, op.logical_or),
    "sub": _arithmetic(op.subtract),
    "mul": _arithmetic(op.multiply, op.logical_and),
    "div": _arithmetic(op.divide),
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

#: By the name of the torch operator.
OPERATORS: dict[str, Operator] = {
    # The overloads of aten, and `default` for the operators of prims.
    **{
        f"{name}.{overload}": convert
        for name, convert in _ARITHMETIC.items()
        for overload in ("Tensor", "Scalar", "default")
    },
    **RECURRENT_RULES,
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
    "scatter.src": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "upsample_nearest2d.vec": _resize("nearest_neighbor"),
    "upsample_nearest2d.default": _resize("nearest_neighbor"),
    "upsample_bilinear2d.vec": _resize("linear"),
    "upsample_bilinear2d.default": _resize("linear"),
    "squeeze.default": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "where.self": _where,
    "where.ScalarOther": _where,
    "where.ScalarSelf": _where,
    "fill.Tensor": _fill,
    "floor_divide.default": _rounded_quotient,
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    "_unsafe_view.default": _reshape,
    **SELECTING,
    **SORTING,
    "exp2.default": _elementwise(
        lambda x: op.exp(op.multiply(x, relax.const(0.6931471805599453, str(x.ty.dtype))))
    ),
}


def conversion(target: Any) -> Operator | None:
    """The conversion here of what a node calls, None where there is none."""
    return QUANTIZED.get(str(target)) or OPERATORS.get(getattr(target, "__name__", str(target)))
