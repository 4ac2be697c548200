"""What each iteration of a parallel loop calls before and after its own, as a schedule asks for.

No step of a schedule puts a call into a loop. Registers that a thread has to set up and to give
back, around all that it computes, need that.
"""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.space.tile_sketches import BRACKET
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


def bracketed(module: Any) -> Any:
    """A scheduled module with the calls around the outermost loops that are marked so."""
    changed = {}
    for gvar, function in module.functions_items():
        body = _inside(function.body) if isinstance(function, tirx.PrimFunc) else None
        if body is not None:
            changed[gvar] = function.with_body(body)
    if not changed:
        return module
    made = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    for gvar, function in changed.items():
        made.update_func(gvar, function)
    return made


def _inside(statement: Any) -> Any | None:
    """The statement with its marked loops changed; None where there are none outside of blocks
    other than the outermost."""
    if isinstance(statement, tvm.s_tir.SBlockRealize):
        block = statement.block
        body = _inside(block.body)
        if body is None:
            return None
        changed = tvm.s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init,
            block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip
        return tvm.s_tir.SBlockRealize(statement.iter_values, statement.predicate, changed)
    if isinstance(statement, tirx.SeqStmt):
        parts = [_inside(part) for part in statement]
        if all(part is None for part in parts):
            return None
        both = zip(parts, statement, strict=True)
        return tirx.SeqStmt([old if new is None else new for new, old in both])
    if isinstance(statement, tirx.For) and BRACKET in statement.annotations:
        before, after = str(statement.annotations[BRACKET]).split()
        kept = {key: value for key, value in statement.annotations.items() if key != BRACKET}
        body = tirx.SeqStmt([_call(before), statement.body, _call(after)])
        return tirx.For(
            statement.loop_var, statement.min, statement.extent, statement.kind, body,
            statement.thread_binding, kept,
        )  # fmt: skip
    return None


def _call(function: str) -> Any:
    return tirx.Evaluate(tirx.call_extern("int32", function))
