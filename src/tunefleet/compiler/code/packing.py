"""How programs take weights in an order of their own: a network's are put into it once, when it is
compiled, and no program does so when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import array_of
from tunefleet.compiler.graph.winograd import fitting
from tunefleet.compiler.space.product_steps import PACKED
from tunefleet.compiler.space.products import WIDE_WEIGHTS
from tunefleet.compiler.space.statements import (
    reading,
    realized,
    statements_of,
    with_statements,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.trial import Built, WeightOrder

tvm = load_tvm()
relax, tirx = tvm.relax, tvm.tirx
_CALL_TIR = tvm.ir.Op.get("relax.call_tir")

Array = NDArray[Any]


def without_packing(module: Any) -> Any:
    """A scheduled module with the single function `main`, whose packed weights are arguments in
    their packed shape."""
    rewritten = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
    function = rewritten(_without_widening(module))["main"]
    # Made anew: TVM's pass leaves the type with the arguments before.
    made = tirx.PrimFunc(
        list(function.params), function.body, function.ret_type, attrs=function.attrs
    )
    return tvm.IRModule({"main": made})


def _without_widening(module: Any) -> Any:
    """The same of weights that overlapping vectors read, of which TVM's pass knows nothing: it
    takes packing for another order of the same weights."""
    function = module["main"]
    root = function.body.block
    statements = statements_of(root)
    found = [block for each in statements if (block := _widening(each)) is not None]
    if not found:
        return module
    (block,) = found
    wide, given = block.writes[0].source, block.reads[0].source
    argument = tirx.decl_buffer(wide.shape, str(wide.dtype), name=str(given.name))
    left = [reading(each, wide, argument) for each in statements if _widening(each) is None]
    allocated = [buffer for buffer in root.alloc_buffers if not buffer.same_as(wide)]
    new = with_statements(root, left, allocated)
    parameters = [argument if each.same_as(given) else each for each in function.params]
    realize = tvm.s_tir.SBlockRealize([], function.body.predicate, new)
    made = tirx.PrimFunc(parameters, realize, function.ret_type, attrs=function.attrs)
    return tvm.IRModule({"main": made})


def _widening(statement: Any) -> Any:
    """The block of a statement that is the packing of such weights."""
    found = realized(statement)
    if found is None or str(found.block.name_hint) != WIDE_WEIGHTS:
        return None
    return found.block if PACKED in found.block.annotations else None


#: Shapes of a program's arguments, and how it packs some of them.
Arguments = tuple[Sequence[Sequence[int]], Sequence[WeightOrder]]


def arguments_of(built: Built, arrays: Sequence[Array]) -> list[Array]:
    """A task's arguments as a built program takes them."""
    taken = [shape for shape, _ in built.args], built.packings
    return [_taken(taken, number, array) for number, array in enumerate(arrays)]


def with_weights_of(mod: Any, taken: Mapping[str, Arguments]) -> Any:
    """A module whose calls of the programs in `taken` have their weights as these take them:
    constants of the calls."""
    # A variable has the type of its function: those of functions of other types are others.
    builder = relax.BlockBuilder()
    named = {name: builder.add_func(mod[name], name) for name in taken}
    functions = {named.get(str(gvar.name_hint), gvar): f for gvar, f in mod.functions_items()}
    calls = _Calls(taken, named)
    made = {
        gvar: calls.visit_expr(function) if isinstance(function, relax.Function) else function
        for gvar, function in functions.items()
    }
    return tvm.IRModule(made, attrs=mod.attrs)


@relax.expr_functor.mutator
class _Calls(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, taken: Mapping[str, Arguments], named: Mapping[str, Any]) -> None:
        super().__init__()
        self._of_programs, self._named = taken, named
        self._known: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        taken = self._of_programs.get(str(call.args[0].name_hint)) if call.op == _CALL_TIR else None
        if taken is None:
            return call
        fields = list(call.args[1].fields)
        for number, field in enumerate(fields):
            if isinstance(field, tvm.ir.GenericConst):
                fields[number] = self._constant(field, taken, number)
        arguments = [self._named[str(call.args[0].name_hint)], relax.Tuple(fields)]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)

    def _constant(self, constant: Any, taken: Arguments, number: int) -> Any:
        key = constant, *_argument(taken, number)
        if key not in self._known:
            array = array_of(constant.value)
            made = _taken(taken, number, array)
            # Without its type, numbers of 64 bits become those of 32.
            dtype = str(constant.value.dtype)
            self._known[key] = constant if made is array else relax.const(made, dtype)
        return self._known[key]


def _taken(taken: Arguments, number: int, array: Array) -> Array:
    """An argument as a program takes it: in Winograd's form, and packed."""
    shape, packing = _argument(taken, number)
    given = fitting(array, packing.given if packing else shape)
    return given if packing is None else _packed(given, packing, shape)


def _argument(taken: Arguments, number: int) -> tuple[tuple[int, ...], WeightOrder | None]:
    shapes, packings = taken
    return tuple(shapes[number]), next((p for p in packings if p.argument == number), None)


def _packed(array: Array, packing: WeightOrder, shape: Sequence[int]) -> Array:
    for axis, indices in packing.taken:
        array = array.take(indices, axis)
    if array.shape != packing.padded:
        longer = zip(packing.padded, array.shape, strict=True)
        array = np.pad(array, [(0, extent - given) for extent, given in longer])
    made = array.reshape(packing.digits).transpose(packing.order).reshape(shape)
    return np.ascontiguousarray(made)
