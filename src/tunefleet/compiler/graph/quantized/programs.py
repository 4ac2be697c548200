"""Steps that no operator of Relax is, as compute definitions, once layouts are chosen."""

from __future__ import annotations

from functools import partial
from typing import Any

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.padded_products import (
    convolution,
    matmul,
    padded_rows,
    padded_weight,
    pixels_of,
)
from tunefleet.compiler.graph.quantized.affine import EIGHT_BITS, relax, tvm
from tunefleet.compiler.toolchain.programs import FUSABLE

te = tvm.te

_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_MATMUL = tvm.ir.Op.get("relax.matmul")
_PAD = tvm.ir.Op.get("relax.nn.pad")
_ADD, _MULTIPLY = (tvm.ir.Op.get(f"relax.{name}") for name in ("add", "multiply"))


def with_programs(mod: Any, *, tiles: bool) -> Any:
    """`mod` (NHWC, HWIO) with compute definitions for steps of quantised networks. `tiles`: for a
    processor with registers for tiles.

    A convolution of integers pads its borders, which were an operator before it, and its channels
    in a block of its own: a pad that is an operator would be a program of its own, and write a copy
    of the tensor. So does a product of matrices with constant weights. A product by a scale and a
    sum are one instruction with one rounding, whichever schedule they get.
    """
    mutator = _Written(mod, tiles)
    function = mutator.visit_expr(mod["main"])
    written = mutator.builder_.get()
    written.update_func(written.get_global_var("main"), function)
    return relax.transform.DeadCodeElimination()(written)


@relax.expr_functor.mutator
class _Written(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any, tiles: bool) -> None:
        super().__init__(mod)
        self._tiles = tiles

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op == _CONVOLUTION and str(call.ty.dtype) == "int32":
            return self._convolution(call)
        if call.op == _MATMUL and str(call.ty.dtype) == "int32":
            return self._matmul(call)
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

    def _convolution(self, call: Any) -> Any:
        attrs, (data, weight) = call.attrs, call.args
        if (str(attrs.data_layout), str(attrs.kernel_layout)) != ("NHWC", "HWIO"):
            return call
        top, left, bottom, right = ints(attrs.padding)
        widths, value = [0, 0, top, bottom, left, right, 0, 0], 0
        pad = self._bound(data)
        if isinstance(pad, relax.Call) and pad.op == _PAD and not any(widths):
            data, widths, value = pad.args[0], ints(pad.attrs.pad_width), int(pad.attrs.pad_value)
        outputs, values = int(call.ty.shape.values[-1]), value_of(weight)
        if int(attrs.groups) == 1 and values is not None:
            values = padded_weight(values)
            widths[-1] += values.shape[-2] - int(weight.ty.shape.values[-2])
            weight = self.builder_.normalize(constant(values))
        _, height, width, _ = ints(call.ty.shape)
        shapes = ints(data.ty.shape), ints(weight.ty.shape)
        narrow = self._tiles and pixels_of(shapes, (height, width), widths, attrs)
        fits = self._fits(width) or int(attrs.groups) != 1
        if not any(widths) and ints(weight.ty.shape)[-1] == outputs and fits and not narrow:
            return call
        define = partial(convolution, tiles=self._tiles)
        return self._defined(define, call, data, weight, (widths, value, outputs, attrs))

    def _matmul(self, call: Any) -> Any:
        data, weight = call.args
        values = value_of(weight)
        if values is None or values.ndim != 2 or str(data.ty.dtype) not in EIGHT_BITS:
            return call
        padded = padded_weight(values)
        if padded.shape == values.shape and all(map(self._fits, ints(data.ty.shape)[-2:-1])):
            return call
        made = self.builder_.normalize(constant(padded))
        return self._defined(
            partial(matmul, tiles=self._tiles), call, data, made, (values.shape[1],)
        )

    def _fits(self, rows: int) -> bool:
        """Whether so many rows need no others to divide into tiles."""
        return not self._tiles or padded_rows(rows) == rows

    def _defined(self, define: Any, call: Any, data: Any, weight: Any, others: Any) -> Any:
        name = str(call.op.name).removeprefix("relax.").removeprefix("nn.")
        return self.builder_.call_te(
            define,
            data,
            weight,
            *others,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": FUSABLE},
        )


def _multiplied_and_added(x: Any, scale: Any, y: Any) -> Any:
    before = [int(extent) for extent in y.shape]
    skipped = len(x.shape) - len(before)

    def element(*place: Any) -> Any:
        at = [0 if extent == 1 else i for extent, i in zip(before, place[skipped:], strict=True)]
        return tvm.tirx.op.fma(x(*place), scale(*[0] * len(scale.shape)), y(*at))

    return te.compute(x.shape, element, name="fma")
