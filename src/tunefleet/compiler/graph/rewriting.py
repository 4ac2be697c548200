"""A Relax network written anew, binding by binding: what passes that change it on the way share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
