"""Convolutions of integers whose border holds a zero point, as one program."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import relax, tvm

te, topi = tvm.te, tvm.topi

#: TVM's number for programs that take elementwise ones after them.
_FUSABLE = 4
_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_PAD = tvm.ir.Op.get("relax.nn.pad")


def with_borders(mod: Any) -> Any:
    """`mod` with each convolution of a padded integer tensor (NHWC, HWIO) as a compute definition
    that pads in a block of its own: a pad that is an operator would be a program of its own, and
    write a copy of the tensor."""
    mutator = _Joined(mod)
    mod.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    joined = mutator.builder_.get()
    joined.update_func(joined.get_global_var("main"), mod["main"])
    return relax.transform.DeadCodeElimination()(joined)


@relax.expr_functor.mutator
class _Joined(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op != _CONVOLUTION or str(call.ty.dtype) != "int32":
            return call
        attrs, data = call.attrs, call.args[0]
        pad = self.lookup_binding(data) if isinstance(data, relax.Var) else None
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
        if not isinstance(pad, relax.Call) or pad.op != _PAD or layouts != ("NHWC", "HWIO"):
            return call
        return self.builder_.call_te(
            _convolution,
            pad.args[0],
            call.args[1],
            pad.attrs,
            attrs,
            primfunc_name_hint="conv2d",
            primfunc_attrs={"op_pattern": _FUSABLE},
        )


def _convolution(data: Any, weight: Any, pad: Any, attrs: Any) -> Any:
    """As TVM defines it, whose own would add a block that copies what is padded already."""
    widths, groups = ints(pad.pad_width), int(attrs.groups)
    strides, dilation = ints(attrs.strides), ints(attrs.dilation)
    border = tvm.tirx.const(int(pad.pad_value), data.dtype)
    padded = topi.nn.pad(data, widths[::2], widths[1::2], border, name="pad_temp")
    batch, *extents, _ = ints(padded.shape)
    rows, columns, inputs, outputs = ints(weight.shape)
    height, width = (
        (extent - (taps - 1) * step - 1) // stride + 1
        for extent, taps, step, stride in zip(
            extents, (rows, columns), dilation, strides, strict=True
        )
    )
    ry, rx = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, columns), "rx")
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
    return te.compute((batch, height, width, outputs), pixel, name=name)
