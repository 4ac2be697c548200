"""Inserts the code of register tiles: the functions that their intrinsics call, and the calls that
set up and release registers in each iteration of a marked parallel loop.

No schedule primitive can insert a call into a loop.
"""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.space.intrinsics import tiles_named
from tunefleet.compiler.space.product_steps import IMPORTED
from tunefleet.compiler.space.tile_sketches import TILES
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


def bracketed(module: Any) -> Any:
    """A scheduled module with the calls inside its outermost marked loops."""
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
    """The statement with its outermost marked loops changed; None if there are none."""
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
    named = statement.annotations.get(TILES) if isinstance(statement, tirx.For) else None
    found = None if named is None else tiles_named(str(named))
    if found is None:
        return None
    tiles, _ = found
    before, after = tiles.bracket
    kept = {key: value for key, value in statement.annotations.items() if key != TILES}
    return tirx.For(
        statement.loop_var,
        statement.min,
        statement.extent,
        statement.kind,
        tirx.SeqStmt([_call(before), statement.body, _call(after)]),
        statement.thread_binding,
        kept | {IMPORTED: tiles.llvm()},
    )


def _call(function: str) -> Any:
    return tirx.Evaluate(tirx.call_extern("int32", function))
