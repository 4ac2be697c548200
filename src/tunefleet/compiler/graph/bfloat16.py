"""Products of float32 as products of bfloat16 with sums in float32, once layouts are chosen.

The data of a product are rounded by a program of its own, its weights here. Taken into what
computed them, sums in another order would give other bits, and no program could be checked. What
has no constant weights (the scores of attention, say), what is grouped, and all that is no product
stays in float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.padded_products import (
    LEAST_COLUMNS,
    OF_BFLOAT16,
    convolution,
    matmul,
    padded_weight,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import rounded, rounded_array

tvm = load_tvm()
relax = tvm.relax
te = tvm.te

#: TVM's numbers for programs that take elementwise ones after them, and that are fused with none.
_FUSABLE, _OPAQUE = 4, 8
_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_MATMUL = tvm.ir.Op.get("relax.matmul")


def in_bfloat16(mod: Any) -> Any:
    """`mod` (Relax; NHWC, HWIO) with products by constant float32 weights in bfloat16."""
    mutator = _Rounded(mod)
    function = mutator.visit_expr(mod["main"])
    made = mutator.builder_.get()
    made.update_func(made.get_global_var("main"), function)
    return relax.transform.DeadCodeElimination()(made)


@relax.expr_functor.mutator
class _Rounded(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, mod: Any) -> None:
        super().__init__(mod)
        #: Rounded once for all products that read it, by variable.
        self._bits: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if call.op not in (_CONVOLUTION, _MATMUL) or str(call.ty.dtype) != "float32":
            return call
        data, weight = call.args
        values = value_of(weight)
        if values is None or values.shape[-1] < LEAST_COLUMNS or values.shape[-2] < 2:
            return call
        if call.op == _MATMUL:
            return self._matmul(call, data, values)
        attrs = call.attrs
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
        if layouts != ("NHWC", "HWIO") or int(attrs.groups) != 1:
            return call
        top, left, bottom, right = ints(attrs.padding)
        made = padded_weight(rounded_array(values), OF_BFLOAT16)
        more = made.shape[-2] - values.shape[-2]
        widths = [0, 0, top, bottom, left, right, 0, more]
        others = (widths, 0, values.shape[-1], attrs)
        return self._defined(convolution, "conv2d", data, made, others)

    def _matmul(self, call: Any, data: Any, values: Any) -> Any:
        if values.ndim != 2 or len(data.ty.shape.values) < 2:
            return call
        made = padded_weight(rounded_array(values), OF_BFLOAT16)
        return self._defined(matmul, "matmul", data, made, (values.shape[1],))

    def _defined(self, define: Any, name: str, data: Any, values: Any, others: Any) -> Any:
        weight = self.builder_.normalize(constant(values))
        return self.builder_.call_te(
            partial(define, terms=OF_BFLOAT16),
            self._rounded(data),
            weight,
            *others,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": _FUSABLE},
        )

    def _rounded(self, data: Any) -> Any:
        if data not in self._bits:
            self._bits[data] = self.builder_.emit_te(
                _bits_of, data, primfunc_name_hint="cast", primfunc_attrs={"op_pattern": _OPAQUE}
            )
        return self._bits[data]


def _bits_of(x: Any) -> Any:
    return te.compute(x.shape, lambda *place: rounded(x(*place)), name="to_bfloat16")
