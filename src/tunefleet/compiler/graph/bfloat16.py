"""Products of float32 as products of bfloat16 with sums in float32, once layouts are chosen.

What a product reads is kept in bfloat16 from where it is computed: whatever else reads it reads the
rounded numbers, so that nobody writes float32, and rounding is the last step of the program
before. Inputs of a network and its outputs stay float32. So does what has no constant weights (the
scores of attention, say), what is grouped, and all that is no product. And so does a normalised
tensor that more than products read: networks that normalise their sums (BERT) hand them from layer
to layer, and what is rounded there adds up to as much as all their products lose.
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
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, rounded, rounded_array, widened
from tunefleet.compiler.toolchain.programs import FUSABLE
from tunefleet.core.precision import BF16, FLOAT32
from tunefleet.errors import InputError

tvm = load_tvm()
relax = tvm.relax
te = tvm.te

_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_MATMUL = tvm.ir.Op.get("relax.matmul")
_NORMALISATION = tvm.ir.Op.get("relax.nn.layer_norm")


def in_bfloat16(mod: Any, *, tiles: bool) -> Any:
    """`mod` (Relax; NHWC, HWIO) with products by constant float32 weights in bfloat16. `tiles`: for
    a processor with registers for tiles. Raises InputError where there are none."""
    if not any(map(_is_made, _calls(mod["main"]))):
        raise InputError(
            f"nothing of this network would be in {BF16}: no product is by weights in {FLOAT32}, "
            f"of {LEAST_COLUMNS} columns or more and without groups",
            cure="leave out --precision",
        )
    mutator = _Rounded(mod, tiles)
    function = mutator.visit_expr(mod["main"])
    made = mutator.builder_.get()
    made.update_func(made.get_global_var("main"), function)
    return relax.transform.DeadCodeElimination()(made)


def _is_made(call: Any) -> bool:
    """Whether a call is a product that is computed in bfloat16."""
    if call.op not in (_CONVOLUTION, _MATMUL) or str(call.ty.dtype) != "float32":
        return False
    data, weight = call.args
    values = value_of(weight)
    if values is None or values.shape[-1] < LEAST_COLUMNS or values.shape[-2] < 2:
        return False
    if call.op == _MATMUL:
        return values.ndim == 2 and len(data.ty.shape.values) >= 2
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    return layouts == ("NHWC", "HWIO") and int(call.attrs.groups) == 1


def _calls(function: Any) -> list[Any]:
    values = (each.value for block in function.body.blocks for each in block.bindings)
    return [value for value in values if isinstance(value, relax.Call)]


def _kept(function: Any) -> set[Any]:
    """Variables that are kept in bfloat16: products read them, and they are neither outputs nor
    sums that are handed on."""
    bound = {each.var: each.value for block in function.body.blocks for each in block.bindings}
    calls = _calls(function)
    read = {call.args[0] for call in calls if _is_made(call)}
    outputs, waiting = set(), [function.body.body]
    while waiting:
        each = waiting.pop()
        value = bound.get(each, each)
        if isinstance(value, relax.Tuple):
            waiting.extend(list(value.fields))
        elif isinstance(value, relax.Var) and value is not each:
            waiting.append(value)
        outputs.add(each)
    others = {arg for call in calls if not _is_made(call) for arg in call.args}
    handed_on = {each for each in read & others if _is_call(bound.get(each), _NORMALISATION)}
    return {each for each in read - handed_on if each in bound and each not in outputs}


def _is_call(value: Any, operator: Any) -> bool:
    return isinstance(value, relax.Call) and value.op == operator


@relax.expr_functor.mutator
class _Rounded(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, mod: Any, tiles: bool) -> None:
        super().__init__(mod)
        self._tiles = tiles
        self._kept = _kept(mod["main"])
        #: Rounded once for all that reads it, by variable.
        self._bits: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        super().visit_var_binding_(binding)
        if binding.var not in self._kept:
            return
        made = self.get_var_remap(binding.var)
        bits = self._rounded(binding.var if made is None else made)
        widened = self.builder_.emit_te(_floats_of, bits, primfunc_name_hint="cast")
        self._bits[widened] = bits
        self.set_var_remap(binding.var, widened)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        values = value_of(call.args[1]) if _is_made(call) else None
        if values is None:
            return call
        data, attrs = call.args[0], call.attrs
        made = padded_weight(rounded_array(values), OF_BFLOAT16)
        if call.op == _MATMUL:
            return self._defined(matmul, "matmul", data, made, (values.shape[1],))
        top, left, bottom, right = ints(attrs.padding)
        more = made.shape[-2] - values.shape[-2]
        widths = [0, 0, top, bottom, left, right, 0, more]
        others = (widths, 0, values.shape[-1], attrs)
        define = partial(convolution, tiles=self._tiles)
        return self._defined(define, "conv2d", data, made, others)

    def _defined(self, define: Any, name: str, data: Any, values: Any, others: Any) -> Any:
        weight = self.builder_.normalize(constant(values))
        return self.builder_.call_te(
            partial(define, terms=OF_BFLOAT16),
            self._rounded(data),
            weight,
            *others,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": FUSABLE},
        )

    def _rounded(self, data: Any) -> Any:
        if data not in self._bits:
            self._bits[data] = self.builder_.emit_te(_bits_of, data, primfunc_name_hint="cast")
        return self._bits[data]


def _bits_of(x: Any) -> Any:
    return te.compute(x.shape, lambda *place: rounded(x(*place)), name="to_bfloat16")


def _floats_of(x: Any) -> Any:
    return te.compute(
        x.shape, lambda *place: widened(x(*place), BFLOAT16, "float32"), name="of_bfloat16"
    )
