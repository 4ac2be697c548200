"""Products of integers as programs that pad what they read: the borders of convolutions by a zero
point, and channels to what tensor instructions take at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import Array, relax, tvm

te, topi = tvm.te, tvm.topi

#: TVM's number for programs that take elementwise ones after them.
_FUSABLE = 4
_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_MATMUL = tvm.ir.Op.get("relax.matmul")
_BYTES = ("uint8", "int8")
_PAD = tvm.ir.Op.get("relax.nn.pad")


#: Terms that tensor instructions of 8-bit integers sum at once, and the least of their results.
_DEPTH, _LANES = 4, 4
#: Results below which a product is not worth such an instruction.
_LEAST_COLUMNS = 8


def with_padding(mod: Any) -> Any:
    """`mod` with convolutions (NHWC, HWIO) of integers as compute definitions that pad in a block
    of their own: a pad that is an operator would be a program of its own, and write a copy of the
    tensor. They pad the borders that were operators before them, and channels; so do products of
    matrices with constant weights."""
    mutator = _Joined(mod)
    mod.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    joined = mutator.builder_.get()
    joined.update_func(joined.get_global_var("main"), mod["main"])
    return relax.transform.DeadCodeElimination()(joined)


@relax.expr_functor.mutator
class _Joined(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if str(getattr(call.ty, "dtype", "")) != "int32":
            return call
        if call.op == _CONVOLUTION:
            return self._convolution(call)
        return self._matmul(call) if call.op == _MATMUL else call

    def _convolution(self, call: Any) -> Any:
        attrs, (data, weight) = call.attrs, call.args
        if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NHWC", "HWIO"):
            return call
        widths, value = [0] * 8, 0
        pad = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        if isinstance(pad, relax.Call) and pad.op == _PAD:
            data, widths, value = pad.args[0], ints(pad.attrs.pad_width), int(pad.attrs.pad_value)
        outputs, values = int(call.ty.shape.values[-1]), value_of(weight)
        if int(attrs.groups) == 1 and values is not None and not any(ints(attrs.padding)):
            values = _padded_weight(values)
            widths[-1] += values.shape[-2] - int(weight.ty.shape.values[-2])
            weight = self.builder_.normalize(constant(values))
        if not any(widths) and int(weight.ty.shape.values[-1]) == outputs:
            return call
        return self._defined(_convolution, call, data, weight, (widths, value, outputs, attrs))

    def _matmul(self, call: Any) -> Any:
        data, weight = call.args
        values = value_of(weight)
        if values is None or values.ndim != 2 or str(data.ty.dtype) not in _BYTES:
            return call
        padded = _padded_weight(values)
        if padded.shape == values.shape:
            return call
        made = self.builder_.normalize(constant(padded))
        return self._defined(_matmul, call, data, made, (values.shape[1],))

    def _defined(self, define: Any, call: Any, data: Any, weight: Any, others: Any) -> Any:
        name = str(call.op.name).removeprefix("relax.").removeprefix("nn.")
        return self.builder_.call_te(
            define,
            data,
            weight,
            *others,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": _FUSABLE},
        )


def _padded_weight(values: Array) -> Array:
    """[..., depth, columns] with zeros where instructions want more of them."""
    depth, columns = values.shape[-2:]
    if columns < _LEAST_COLUMNS:
        return values
    more = [(0, -depth % _DEPTH), (0, -columns % _LANES)]
    return np.pad(values, [(0, 0)] * (values.ndim - 2) + more)


def _cropped(sums: Any, columns: int) -> Any:
    """The first `columns` of all, where there are more."""
    shape = ints(sums.shape)
    if shape[-1] == columns:
        return sums
    return te.compute((*shape[:-1], columns), lambda *i: sums[i], name="columns")


def _matmul(data: Any, weight: Any, columns: int) -> Any:
    *outer, own = ints(data.shape)
    depth, lanes = ints(weight.shape)
    if depth != own:
        after = [0] * len(outer) + [depth - own]
        data = topi.nn.pad(data, [0] * len(after), after, tvm.tirx.const(0, data.dtype), "pad_temp")
    k = te.reduce_axis((0, depth), "k")

    def cell(*index: Any) -> Any:
        *rows, column = index
        product = data[(*rows, k)].astype("int32") * weight[k, column].astype("int32")
        return te.sum(product, axis=k)

    return _cropped(te.compute((*outer, lanes), cell, name="matmul"), columns)


def _convolution(
    data: Any, weight: Any, widths: list[int], value: int, columns: int, attrs: Any
) -> Any:
    """As TVM defines it, whose own would add a block that copies what is padded already."""
    groups, strides, dilation = int(attrs.groups), ints(attrs.strides), ints(attrs.dilation)
    border = tvm.tirx.const(value, data.dtype)
    padded = data
    if any(widths):
        padded = topi.nn.pad(data, widths[::2], widths[1::2], border, name="pad_temp")
    batch, *extents, _ = ints(padded.shape)
    rows, across, inputs, outputs = ints(weight.shape)
    height, width = (
        (extent - (taps - 1) * step - 1) // stride + 1
        for extent, taps, step, stride in zip(
            extents, (rows, across), dilation, strides, strict=True
        )
    )
    ry, rx = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, across), "rx")
    rc = te.reduce_axis((0, inputs), "rc")

    def pixel(n: Any, y: Any, x: Any, o: Any) -> Any:
        row = y * strides[0] + ry * dilation[0]
        column = x * strides[1] + rx * dilation[1]
        channel = rc if groups == 1 else o // (outputs // groups) * inputs + rc
        product = padded[n, row, column, channel].astype("int32") * weight[ry, rx, rc, o].astype(
            "int32"
        )
        return te.sum(product, axis=[ry, rx, rc])

    name = "conv2d_nhwc" if groups == 1 else "group_conv2d_nhwc"
    sums = te.compute((batch, height, width, outputs), pixel, name=name)
    return _cropped(sums, columns)
