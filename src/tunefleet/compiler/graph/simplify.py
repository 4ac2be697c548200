"""Relax-to-Relax simplification: constants folded with NumPy, scales and pads folded into
convolutions, operators without layout inference replaced by ones that have it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import Array, fold, ints, shape_of
from tunefleet.compiler.graph.rewriting import (
    bindings_of,
    op_name,
    operands,
    rewritten,
    substituted,
)
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax
GenericConst = tvm.ir.GenericConst

#: Their constant operand is put second, so that a rule looks in one place only.
_COMMUTATIVE = {"relax.add", "relax.multiply"}

#: Where a convolution's weight has the output channels, in the layouts that importers write.
_OUTPUT_AXIS = {
    "relax.nn.conv2d": (0, ("NCHW", "OIHW")),
    "relax.nn.conv3d": (0, ("NCDHW", "OIDHW")),
    "relax.nn.conv2d_transpose": (1, ("NCHW", "IOHW")),
}


def _rank(expr: Any) -> int:
    return int(expr.ty.ndim)


def simplify(mod: Any) -> Any:
    """`mod` (Relax, one function `main`, NCHW) with the rewrites of this module applied.

    A function that is not one straight dataflow block is returned as it is.
    """
    bindings = bindings_of(mod["main"])
    if bindings is None:
        return mod
    rewriter = _Rewriter(mod["main"])
    made = rewritten(mod, rewriter.builder, bindings, rewriter.visit, rewriter.substitute)
    return relax.transform.DeadCodeElimination()(made)


class _Rewriter:
    """Walks the bindings in order; what it has seen is already simplified."""

    def __init__(self, function: Any) -> None:
        self.builder = relax.BlockBuilder()
        self._new: dict[Any, Any] = {}  # variable of the old function -> expression of the new
        self._definition: dict[Any, Any] = {}  # variable of the new function -> its call
        self._uses: dict[Any, int] = {}
        self._old_uses = _count_uses(function)

    def visit(self, var: Any, value: Any) -> None:
        value = self.simplified(self.substitute(value))
        if isinstance(value, (relax.Var, GenericConst, relax.Tuple)):
            self._new[var] = value
        else:
            self._new[var] = self.emit(value, uses=self._old_uses.get(var, 0))

    def emit(self, call: Any, uses: int = 1) -> Any:
        var = self.builder.emit(call)
        self._definition[var] = call
        self._uses[var] = uses
        return var

    def simplified(self, expr: Any) -> Any:
        """The expression after folding and the rule of its operator, once."""
        if isinstance(expr, relax.TupleGetItem) and isinstance(expr.tuple_value, relax.Tuple):
            return expr.tuple_value.fields[int(expr.index)]
        name = op_name(expr)
        if name in _COMMUTATIVE and isinstance(expr.args[0], GenericConst):
            expr = relax.Call(expr.op, [expr.args[1], expr.args[0]], expr.attrs, expr.ty_args)
        folded = fold(name, expr)
        if folded is not None:
            return folded
        rewritten = _RULES[name](self, expr) if name in _RULES else None
        return expr if rewritten is None else rewritten

    def definition(self, expr: Any) -> Any:
        """The call a variable is bound to where this is its only use, else the expression."""
        if isinstance(expr, relax.Var) and self._uses.get(expr, 2) <= 1:
            return self._definition.get(expr, expr)
        return expr

    def any_definition(self, expr: Any) -> Any:
        """The call a variable is bound to, however often it is used."""
        return self._definition.get(expr, expr) if isinstance(expr, relax.Var) else expr

    def substitute(self, expr: Any) -> Any:
        return substituted(expr, self._new)


def _count_uses(function: Any) -> Counter[Any]:
    values = [binding.value for block in function.body.blocks for binding in block.bindings]
    read = (x for value in [*values, function.body.body] for x in operands(value))
    return Counter(x for x in read if isinstance(x, relax.Var))


def _batch_norm(rewriter: _Rewriter, call: Any) -> Any:
    """Inference batch norm is x * scale + shift with one constant of each per channel."""
    gamma, beta, mean, var = (value_of(a) for a in call.args[1:5])
    attrs = call.attrs
    if gamma is None or beta is None or mean is None or var is None or bool(attrs.training):
        return None
    scale = 1.0 / np.sqrt(var.astype("float64") + float(attrs.epsilon))
    if bool(attrs.scale):
        scale = scale * gamma
    shift = -mean * scale + (beta if bool(attrs.center) else 0.0)
    shape = [1] * _rank(call.args[0])
    shape[int(attrs.axis)] = -1
    scale, shift = (constant(v.astype(gamma.dtype).reshape(shape)) for v in (scale, shift))
    product = rewriter.simplified(relax.op.multiply(call.args[0], scale))
    output = rewriter.simplified(relax.op.add(rewriter.emit(product), shift))
    return relax.Tuple([rewriter.emit(output), call.args[3], call.args[4]])


def _multiply(rewriter: _Rewriter, call: Any) -> Any:
    """conv(x, w) * c -> conv(x, w * c), also through a bias: (conv + b) * c -> conv' + b * c."""
    factor, source = value_of(call.args[1]), rewriter.definition(call.args[0])
    if factor is None:
        return None
    if op_name(source) in _OUTPUT_AXIS:
        return _scaled_conv(source, factor)
    if op_name(source) == "relax.nn.group_norm":
        return _scaled_norm(source, factor, np.zeros(()))
    if op_name(source) == "relax.add":
        conv, bias = rewriter.definition(source.args[0]), value_of(source.args[1])
        if bias is None or op_name(conv) not in _OUTPUT_AXIS:
            return None
        scaled = _scaled_conv(conv, factor)
        if scaled is None:
            return None
        return relax.op.add(rewriter.emit(scaled), constant(bias * factor))
    return None


def _scaled_conv(conv: Any, factor: Array) -> Any:
    """The convolution with `factor`, a number or one per channel, in its weight."""
    weight, attrs = value_of(conv.args[1]), conv.attrs
    axis, layout = _OUTPUT_AXIS[op_name(conv)]
    # A transposed convolution's weight has the outputs of one group only.
    grouped = axis != 0 and int(attrs.groups) != 1
    if weight is None or grouped or (str(attrs.data_layout), str(attrs.kernel_layout)) != layout:
        return None
    if not _is_per_channel(factor, weight.shape[axis], weight.ndim):
        return None
    shape = [1] * weight.ndim
    shape[axis] = factor.size
    scaled = weight * factor.reshape(shape).astype(weight.dtype)
    return relax.Call(conv.op, [conv.args[0], constant(scaled)], attrs, conv.ty_args)


def _scaled_norm(norm: Any, factor: Array, shift: Array) -> Any:
    """The normalisation with `factor` and `shift`, each a number or one per channel, in its own."""
    x, *own = norm.args
    scale, bias = map(value_of, own)
    if scale is None or bias is None or int(norm.attrs.channel_axis) != 1:
        return None
    if not all(_is_per_channel(each, scale.size, _rank(x)) for each in (factor, shift)):
        return None
    factor, shift = (each.reshape(-1).astype(scale.dtype) for each in (factor, shift))
    made = (constant(scale * factor), constant(bias * factor + shift))
    return relax.Call(norm.op, [x, *made], norm.attrs, norm.ty_args)


def _is_per_channel(value: Array, channels: int, rank: int) -> bool:
    """Whether a value is a number, or one for each channel of images with these axes."""
    spatial = [1] * (rank - 2)
    return value.size == 1 or value.shape in ((1, channels, *spatial), (channels, *spatial))


def _add(rewriter: _Rewriter, call: Any) -> Any:
    """(conv + b) + c -> conv + (b + c), as a bias before a batch norm gives."""
    value, source = value_of(call.args[1]), rewriter.definition(call.args[0])
    if value is not None and op_name(source) == "relax.nn.group_norm":
        return _scaled_norm(source, np.ones(()), value)
    if value is None or op_name(source) != "relax.add":
        return None
    bias = value_of(source.args[1])
    if bias is None:
        return None
    return relax.op.add(source.args[0], constant(bias + value))


def _conv2d(rewriter: _Rewriter, call: Any) -> Any:
    """conv(pad(x)) -> conv with padding, where zeros are padded on spatial axes only."""
    pad, attrs = rewriter.definition(call.args[0]), call.attrs
    layout = str(attrs.data_layout)
    if op_name(pad) != "relax.nn.pad" or layout not in ("NCHW", "NHWC"):
        return None
    flat = ints(pad.attrs.pad_width)
    if str(pad.attrs.pad_mode) != "constant" or float(pad.attrs.pad_value) != 0.0:
        return None
    widths = dict(zip(layout, zip(flat[::2], flat[1::2], strict=True), strict=True))
    if any(widths["N"]) or any(widths["C"]):
        return None
    (above, below), (before, after) = widths["H"], widths["W"]
    top, left, bottom, right = ints(attrs.padding)
    return relax.op.nn.conv2d(
        pad.args[0],
        call.args[1],
        strides=ints(attrs.strides),
        padding=[top + above, left + before, bottom + below, right + after],
        dilation=ints(attrs.dilation),
        groups=int(attrs.groups),
        data_layout=layout,
        kernel_layout=str(attrs.kernel_layout),
        out_dtype=attrs.out_dtype,
    )


def _reshape(rewriter: _Rewriter, call: Any) -> Any:
    """reshape(reshape(x) @ w + b) -> x @ w + b where the reshapes undo each other.

    torch flattens leading axes around every linear layer; without this the second reshape
    separates a matmul from the activation or residual that should be fused into it.
    """
    shape = shape_of(call)
    inner = rewriter.definition(call.args[0])
    if op_name(inner) == "relax.reshape":
        return relax.op.reshape(inner.args[0], shape)
    if op_name(inner) == "relax.nn.instance_norm":
        return _group_norm(rewriter, inner, shape)
    bias = None
    if op_name(inner) == "relax.add" and isinstance(inner.args[1], GenericConst):
        bias, inner = inner.args[1], rewriter.definition(inner.args[0])
        if len(bias.ty.shape) != 1:
            return None
    if op_name(inner) != "relax.matmul" or not isinstance(inner.args[1], GenericConst):
        return None
    flat = rewriter.any_definition(inner.args[0])
    if op_name(flat) != "relax.reshape" or len(inner.args[1].ty.shape) != 2:
        return None
    source = flat.args[0]
    if ints(source.ty.shape.values)[:-1] != shape[:-1]:
        return None
    columns = ints(inner.args[1].ty.shape.values)[1]
    if shape[-1] != columns or ints(source.ty.shape.values)[-1] != ints(flat.args[1].values)[-1]:
        return None
    product = relax.op.matmul(source, inner.args[1])
    return product if bias is None else relax.op.add(rewriter.emit(product), bias)


def _group_norm(rewriter: _Rewriter, norm: Any, shape: list[int]) -> Any:
    """reshape(instance_norm(reshape(x, (N, groups, -1)))) -> group_norm(x), as exporters write it:
    reshapes have no layout but the importer's, so that transposes would stay around them."""
    flat = rewriter.any_definition(norm.args[0])
    scale, bias, attrs = value_of(norm.args[1]), value_of(norm.args[2]), norm.attrs
    if op_name(flat) != "relax.reshape" or scale is None or bias is None or len(shape) < 3:
        return None
    batch, groups, *rest = ints(norm.args[0].ty.shape.values)
    channels, axes = shape[1], list(range(2, len(shape)))
    if (
        ints(flat.args[0].ty.shape.values) != shape
        or (batch, channels % groups) != (shape[0], 0)
        or (int(attrs.channel_axis), ints(attrs.axes)) != (1, list(range(2, 2 + len(rest))))
    ):
        return None
    each = (constant(np.repeat(of, channels // groups)) for of in (scale, bias))
    return relax.op.nn.group_norm(flat.args[0], *each, groups, 1, axes, float(attrs.epsilon))


def _permute_dims(rewriter: _Rewriter, call: Any) -> Any:
    """Two transposes are one, or none: NCHW blocks that work in NHWC inside are full of them.

    ConvertLayout leaves transposes that change nothing.
    """
    source, axes = call.args[0], call.attrs.axes
    if axes is None:
        return None
    inner = rewriter.any_definition(source)
    axes = ints(axes)
    if op_name(inner) == "relax.permute_dims" and inner.attrs.axes is not None:
        first = ints(inner.attrs.axes)
        source, axes = inner.args[0], [first[axis] for axis in axes]
    if axes == sorted(axes):
        return source
    return None if source is call.args[0] else relax.op.permute_dims(source, axes)


def _clip(rewriter: _Rewriter, call: Any) -> Any:
    """clip has no layout inference, so ConvertLayout would leave transposes around it."""
    try:
        low, high = (float(a.value) for a in call.args[1:3])
    except (AttributeError, TypeError):
        return None
    return _bounded(rewriter, call.args[0], low, high)


def _relu6(rewriter: _Rewriter, call: Any) -> Any:
    return _bounded(rewriter, call.args[0], 0.0, 6.0)


def _bounded(rewriter: _Rewriter, x: Any, low: float, high: float) -> Any:
    """x between the two bounds; torch's clamps to one side have an infinite one."""
    dtype = str(x.ty.dtype)
    if math.isinf(high):
        return x if math.isinf(low) else relax.op.maximum(x, relax.const(low, dtype))
    if not math.isinf(low):
        x = rewriter.emit(relax.op.maximum(x, relax.const(low, dtype)))
    return relax.op.minimum(x, relax.const(high, dtype))


_RULES: dict[str, Callable[[_Rewriter, Any], Any]] = {
    "relax.nn.batch_norm": _batch_norm,
    "relax.multiply": _multiply,
    "relax.add": _add,
    "relax.nn.conv2d": _conv2d,
    "relax.clip": _clip,
    "relax.permute_dims": _permute_dims,
    "relax.reshape": _reshape,
    "relax.nn.relu6": _relu6,
}
