"""A task's program in every form that it can be computed in, of which the search takes the fastest.

Beside the program as it is, a convolution may have one of Winograd's (`winograd.py`): another
program with other weights. It travels as an attribute of the first; a trace tells by the blocks
that it names which of them it schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tunefleet.compiler.graph.loops import unnamed
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.forms import is_winograd

tvm = load_tvm()
relax = tvm.relax

_OTHER = "tunefleet.winograd"
_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def direct(function: Any) -> Any:
    """A PrimFunc without its other form, and without the name that forms by instructions share."""
    has = function.attrs and _OTHER in function.attrs
    return unnamed(function.without_attr(_OTHER) if has else function)


def forms(module: Any) -> list[Any]:
    """Modules whose only function is `main`: the program as it is, and its other form if any."""
    function = module["main"]
    functions = [direct(function)]
    if function.attrs and _OTHER in function.attrs:
        functions.append(function.attrs[_OTHER].with_attr("global_symbol", "main"))
    return [tvm.IRModule({"main": each}) for each in functions]


def form_of(module: Any, trace: str) -> Any:
    """The form that a trace schedules. Raises IndexError where the program has no such form."""
    return forms(module)[1 if is_winograd(trace) else 0]


def with_forms(mod: Any, other: Any) -> Any:
    """`mod` with the programs of `other`, the same network in Winograd's form, as their other form.

    Both are prepared alike, so their calls come in the same order; where fusion made something else
    of them, there are no other forms. Neither is there one of a program that is called with weights
    that are not constant.
    """
    calls, counterparts = list(_calls(mod)), list(_calls(other))
    if [_signature(call) for call in calls] != [_signature(call) for call in counterparts]:
        return mod
    chosen: dict[Any, Any] = {}
    for call, counterpart in zip(calls, counterparts, strict=True):
        gvar, theirs = call.args[0], other[counterpart.args[0]]
        weights = [call.args[1].fields[i] for i in _changed(mod[gvar], theirs)]
        constant = all(isinstance(weight, tvm.ir.GenericConst) for weight in weights)
        chosen[gvar] = theirs if weights and constant and chosen.get(gvar, theirs) else None
    clone = mod.clone()
    for gvar, theirs in chosen.items():
        if theirs is not None:
            attribute = theirs.with_attr("tirx.noalias", True)
            clone.update_func(gvar, mod[gvar].with_attr(_OTHER, attribute))
    return clone


def _signature(call: Any) -> tuple[int, str]:
    return len(call.args[1].fields), str(call.ty)


def _calls(mod: Any) -> Iterator[Any]:
    """The calls of programs in a module's `main`, in their order."""
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and binding.value.op == _CALL_TIR:
                yield binding.value


def shapes_of(function: Any) -> list[list[int]]:
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(function)
    return [[int(d) for d in argument.shape] for argument in arguments]


def _changed(ours: Any, theirs: Any) -> list[int]:
    """The arguments that differ between two forms: the weights."""
    pairs = zip(shapes_of(ours), shapes_of(theirs), strict=True)
    return [i for i, (a, b) in enumerate(pairs) if a != b]
