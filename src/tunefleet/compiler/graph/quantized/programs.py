"""Steps that no operator of Relax is, as compute definitions, once layouts are chosen."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.quantized.affine import relax, tvm

te, topi = tvm.te, tvm.topi

#: TVM's number for programs that take elementwise ones after them.
_FUSABLE = 4
_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_PAD = tvm.ir.Op.get("relax.nn.pad")
_ADD, _MULTIPLY = (tvm.ir.Op.get(f"relax.{name}") for name in ("add", "multiply"))


def with_programs(mod: Any) -> Any:
    """`mod` (NHWC, HWIO) with compute definitions for two steps of quantised networks.

    A convolution of a padded integer tensor pads in a block of its own: a pad that is an operator
    would be a program of its own, and write a copy of the tensor. A product by a scale and a sum
    are one instruction with one rounding, whichever schedule they get.
    """
    mutator = _Written(mod)
    function = mutator.visit_expr(mod["main"])
    written = mutator.builder_.get()
    written.update_func(written.get_global_var("main"), function)
    return relax.transform.DeadCodeElimination()(written)


@relax.expr_functor.mutator
class _Written(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op == _CONVOLUTION and str(call.ty.dtype) == "int32":
            return self._padded(call)
        return self._fused_sum(call) if call.op == _ADD else call

    def _fused_sum(self, call: Any) -> Any:
        """x * scale + y, where the scale is one argument of the program."""
        product = self._bound(call.args[0])
        if not isinstance(product, relax.Call) or product.op != _MULTIPLY:
            return call
        (x, scale), y = product.args, call.args[1]
        shape = [int(extent) for extent in scale.ty.shape.values]
        is_scale = isinstance(scale, tvm.ir.GenericConst) and shape and set(shape) == {1}
        types = {str(part.ty.dtype) for part in (x, scale, y)}
        if not is_scale or types != {"float32"} or ints(x.ty.shape) != ints(call.ty.shape):
            return call
        return self.builder_.call_te(_multiplied_and_added, x, scale, y, primfunc_name_hint="fma")

    def _bound(self, expr: Any) -> Any:
        return self.lookup_binding(expr) if isinstance(expr, relax.Var) else None

    def _padded(self, call: Any) -> Any:
        attrs, data = call.attrs, call.args[0]
        pad = self._bound(data)
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


def _multiplied_and_added(x: Any, scale: Any, y: Any) -> Any:
    before = [int(extent) for extent in y.shape]
    skipped = len(x.shape) - len(before)

    def element(*place: Any) -> Any:
        at = [0 if extent == 1 else i for extent, i in zip(before, place[skipped:], strict=True)]
        return tvm.tirx.op.fma(x(*place), scale(*[0] * len(scale.shape)), y(*at))

    return te.compute(x.shape, element, name="fma")


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
