"""A Relax network written anew, binding by binding: what passes that change it on the way share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax


def op_name(expr: Any) -> str:
    """The operator that an expression calls, "" where it calls none."""
    is_call = isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op)
    return str(expr.op.name) if is_call else ""


def bindings_of(function: Any) -> list[Any] | None:
    """All bindings of a function in their order; None where it checks shapes as it runs."""
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    return None if any(isinstance(each, relax.MatchCast) for each in bindings) else bindings


def operands(expr: Any) -> list[Any]:
    """What an expression reads, in order: variables and constants."""
    if isinstance(expr, relax.TupleGetItem):
        return operands(expr.tuple_value)
    if isinstance(expr, relax.Tuple):
        return [operand for field in expr.fields for operand in operands(field)]
    if isinstance(expr, relax.Call):
        return [operand for arg in expr.args for operand in operands(arg)]
    return [] if isinstance(expr, tvm.ir.GlobalVar) else [expr]


def substituted(expr: Any, new: Mapping[Any, Any]) -> Any:
    """An expression with the variables of `new` replaced."""
    if isinstance(expr, relax.Var):
        return new.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substituted(field, new) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substituted(expr.tuple_value, new), int(expr.index))
    if isinstance(expr, relax.Call):
        args = [substituted(arg, new) for arg in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args)
    return expr


def rewritten(
    mod: Any,
    builder: Any,
    bindings: Iterable[Any],
    write: Callable[[Any, Any], None],
    result: Callable[[Any], Any],
) -> Any:
    """`mod` (Relax, one function `main`) with what `write` emits to `builder` for each variable and
    its value. `result` is the old result in the new function."""
    function = mod["main"]
    with builder.function("main", list(function.params), attrs=dict(function.attrs or {})):
        with builder.dataflow():
            for binding in bindings:
                write(binding.var, binding.value)
            output = builder.emit_output(result(function.body.body))
        builder.emit_func_output(output)
    made = builder.finalize()
    for name, program in mod.functions_items():
        if name.name_hint != "main":  # what an importer wrote as a compute definition
            made.update_func(name, program)
    return made
