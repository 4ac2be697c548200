"""Products of float32 as products of 16-bit floats with sums in float32, once layouts are chosen.

What a product reads is kept in 16 bits from where it is computed: whatever else reads it reads the
rounded numbers, so that nobody writes float32, and rounding is the last step of the program
before. Inputs of a network and its outputs stay float32, and so does what is grouped, and all that
is no product. And so does a normalised tensor that more than products read: networks that normalise
their sums (BERT) hand them from layer to layer, and what is rounded there adds up to as much as all
their products lose.

On a processor what has no constant weights (the scores of attention, say) stays float32 too. Tensor
cores multiply so much faster than the rest of a GPU that there it would take most of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import numpy_type
from tunefleet.compiler.graph.constants import constant, value_of
from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.padded_products import (
    LEAST_COLUMNS,
    OF_BFLOAT16,
    OF_HALVES,
    Terms,
    convolution,
    matmul,
    padded_weight,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, rounded, rounded_array, stored, widened
from tunefleet.compiler.toolchain.programs import FUSABLE
from tunefleet.core.precision import BF16, FLOAT16, FLOAT32, FLOATS, FP16, LARGEST_FLOAT16
from tunefleet.errors import InputError, JobError

tvm = load_tvm()
relax = tvm.relax
te = tvm.te

_CONVOLUTION = tvm.ir.Op.get("relax.nn.conv2d")
_MATMUL = tvm.ir.Op.get("relax.matmul")
_NORMALISATION = tvm.ir.Op.get("relax.nn.layer_norm")


@dataclass(frozen=True, slots=True)
class _Narrow:
    """Which products read what. `dtype`: the type of buffers that hold their numbers.
    `activations`: also products without constant weights."""

    precision: str
    dtype: str
    terms: Terms
    activations: bool

    def is_made(self, call: Any) -> bool:
        """Whether a call is a product that is computed so."""
        if call.op not in (_CONVOLUTION, _MATMUL) or str(call.ty.dtype) != "float32":
            return False
        if not self.activations and value_of(call.args[1]) is None:
            return False
        data, weight = map(_shape, call.args)
        if len(weight) < 2 or weight[-1] < LEAST_COLUMNS or weight[-2] < 2:
            return False
        if call.op == _MATMUL:
            alike = self.activations and data[:-2] == weight[:-2]
            return len(data) >= 2 and (len(weight) == 2 or alike)
        layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
        return layouts == ("NHWC", "HWIO") and int(call.attrs.groups) == 1

    def rounded(self, value: Any) -> Any:
        return rounded(value) if self.dtype == stored(BFLOAT16) else value.astype(self.dtype)

    def widened(self, value: Any) -> Any:
        return widened(value, self.terms.dtype, FLOAT32)

    def array(self, values: NDArray[np.float32]) -> NDArray[Any]:
        """`rounded` for an array."""
        if self.dtype == stored(BFLOAT16):
            return rounded_array(values)
        return values.astype(numpy_type(self.dtype))

    def check_weights(self, call: Any) -> None:
        """Raises JobError where the constant weights of a product are too large."""
        values = value_of(call.args[1])
        if self.precision != FP16 or values is None:
            return
        largest = float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))
        if largest > LARGEST_FLOAT16:
            raise JobError(
                f"this network's weights reach {largest:.3g}, and {FLOAT16} no more than "
                f"{LARGEST_FLOAT16}",
                cure=f"choose {BF16}, or leave out --precision",
            )


#: By the user's choice, on a processor and on a GPU.
_ON_CPU = {BF16: _Narrow(BF16, stored(BFLOAT16), OF_BFLOAT16, activations=False)}
_ON_GPU = {
    each: _Narrow(each, dtype, OF_HALVES, activations=True) for each, dtype in FLOATS.items()
}


def with_narrow_products(mod: Any, precision: str, *, gpu: bool, tiles: bool) -> Any:
    """`mod` (Relax; NHWC, HWIO) with products of float32 in another precision. `gpu`: for one;
    `tiles`: for a processor with registers for tiles.

    Raises InputError where there are none, JobError for weights that are too large.
    """
    narrow = (_ON_GPU if gpu else _ON_CPU)[precision]
    products = [call for call in _calls(mod["main"]) if narrow.is_made(call)]
    for call in products:
        narrow.check_weights(call)
    if not products:
        which = "" if narrow.activations else "by weights "
        raise InputError(
            f"nothing of this network would be in {precision}: no product is {which}in {FLOAT32}, "
            f"of {LEAST_COLUMNS} columns or more and without groups",
            cure="leave out --precision",
        )
    mutator = _Rounded(mod, narrow, tiles)
    function = mutator.visit_expr(mod["main"])
    made = mutator.builder_.get()
    made.update_func(made.get_global_var("main"), function)
    return relax.transform.DeadCodeElimination()(made)


def _shape(expr: Any) -> list[int]:
    """Of a tensor whose shape is known, else []."""
    shape = expr.ty.shape
    return ints(shape.values) if isinstance(shape, relax.ShapeExpr) else []


def _calls(function: Any) -> list[Any]:
    values = (each.value for block in function.body.blocks for each in block.bindings)
    return [value for value in values if isinstance(value, relax.Call)]


def _kept(function: Any, narrow: _Narrow) -> set[Any]:
    """Variables that are kept in 16 bits: products read them, and they are neither outputs nor sums
    that are handed on."""
    bound = {each.var: each.value for block in function.body.blocks for each in block.bindings}
    calls = _calls(function)
    products = [call for call in calls if narrow.is_made(call)]
    read = {arg for call in products for arg in call.args}
    outputs, waiting = set(), [function.body.body]
    while waiting:
        each = waiting.pop()
        value = bound.get(each, each)
        if isinstance(value, relax.Tuple):
            waiting.extend(list(value.fields))
        elif isinstance(value, relax.Var) and value is not each:
            waiting.append(value)
        outputs.add(each)
    others = {arg for call in calls if not narrow.is_made(call) for arg in call.args}
    handed_on = {each for each in read & others if _is_call(bound.get(each), _NORMALISATION)}
    return {each for each in read - handed_on if each in bound and each not in outputs}


def _is_call(value: Any, operator: Any) -> bool:
    return isinstance(value, relax.Call) and value.op == operator


@relax.expr_functor.mutator
class _Rounded(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, mod: Any, narrow: _Narrow, tiles: bool) -> None:
        super().__init__(mod)
        self._narrow = narrow
        self._tiles = tiles
        self._kept = _kept(mod["main"], narrow)
        #: Rounded once for all that reads it, by variable.
        self._rounded_once: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        super().visit_var_binding_(binding)
        if binding.var not in self._kept:
            return
        made = self.get_var_remap(binding.var)
        narrow = self._rounded(binding.var if made is None else made)
        widened = self.builder_.emit_te(self._te_widened, narrow, primfunc_name_hint="cast")
        self._rounded_once[widened] = narrow
        self.set_var_remap(binding.var, widened)

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not self._narrow.is_made(call):
            return call
        (data, weight), attrs = call.args, call.attrs
        columns = _shape(weight)[-1]
        narrow = self._weight(weight)
        if call.op == _MATMUL:
            define = partial(matmul, tiles=self._tiles)
            return self._defined(define, "matmul", data, narrow, (columns,))
        top, left, bottom, right = ints(attrs.padding)
        more = _shape(narrow)[-2] - _shape(weight)[-2]
        widths = [0, 0, top, bottom, left, right, 0, more]
        define = partial(convolution, tiles=self._tiles)
        return self._defined(define, "conv2d", data, narrow, (widths, 0, columns, attrs))

    def _weight(self, weight: Any) -> Any:
        values = value_of(weight)
        if values is None:
            return self._rounded(weight)
        made = self._narrow.array(values)
        return self.builder_.normalize(constant(padded_weight(made, self._narrow.terms)))

    def _defined(self, define: Any, name: str, data: Any, weight: Any, others: Any) -> Any:
        return self.builder_.call_te(
            partial(define, terms=self._narrow.terms),
            self._rounded(data),
            weight,
            *others,
            primfunc_name_hint=name,
            primfunc_attrs={"op_pattern": FUSABLE},
        )

    def _rounded(self, data: Any) -> Any:
        if data not in self._rounded_once:
            narrow = self.builder_.emit_te(self._te_rounded, data, primfunc_name_hint="cast")
            self._rounded_once[data] = narrow
        return self._rounded_once[data]

    def _te_rounded(self, x: Any) -> Any:
        narrow = self._narrow
        name = f"to_{FLOATS[narrow.precision]}"
        return te.compute(x.shape, lambda *i: narrow.rounded(x(*i)), name=name)

    def _te_widened(self, x: Any) -> Any:
        narrow = self._narrow
        name = f"of_{FLOATS[narrow.precision]}"
        return te.compute(x.shape, lambda *i: narrow.widened(x(*i)), name=name)
