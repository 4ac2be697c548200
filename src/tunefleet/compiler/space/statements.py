"""The statements of a program's outermost block, and what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


def statements_of(root: Any) -> list[Any]:
    """The statements of a function's outermost block."""
    return list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]


def with_statements(root: Any, statements: Sequence[Any], allocated: Sequence[Any]) -> Any:
    """A function's outermost block with other statements and buffers."""
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    return tvm.s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, allocated,
        root.match_buffers, root.annotations,
    )  # fmt: skip


def reading(node: Any, old: Any, new: Any) -> Any:
    """A statement, expression or region that reads `new` in place of the buffer `old`."""

    def load(each: Any) -> Any:
        return new[tuple(each.indices)] if each.source.same_as(old) else each

    def region(each: Any) -> Any:
        return tirx.BufferRegion(new, each.region) if each.source.same_as(old) else each

    rules = [(tvm.ir.TensorLoad, load), (tvm.ir.TensorRegion, region)]
    return tvm_ffi.structural_map(node, rules)


def realized(statement: Any) -> Any:
    """The block inside a nest of loops; None if there is more than one."""
    while isinstance(statement, tirx.For):
        statement = statement.body
    return statement if isinstance(statement, tvm.s_tir.SBlockRealize) else None


def replaced(node: Any, new: Sequence[tuple[Any, Any]]) -> Any:
    """An expression or region with other variables, or values in their place."""

    def variable(old: Any) -> Any:
        return next((value for known, value in new if old.same_as(known)), old)

    return tvm_ffi.structural_map(node, [(tirx.Var, variable)])
