"""Scheduled programs without the packing of their weights, which happens when a network is
compiled."""

from __future__ import annotations

from typing import Any

import tvm_ffi

from tunefleet.compiler.space.padded_rows import realized
from tunefleet.compiler.space.product_steps import PACKED
from tunefleet.compiler.space.products import WIDE_WEIGHTS
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
tirx = tvm.tirx


def without_packing(module: Any) -> Any:
    """A scheduled module with the single function `main`, whose packed weights are arguments in
    their packed shape."""
    rewritten = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
    return rewritten(_without_widening(module))


def _without_widening(module: Any) -> Any:
    """The same of weights that overlapping vectors read, of which TVM's pass knows nothing: it
    takes packing for another order of the same weights."""
    function = module["main"]
    root = function.body.block
    statements = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    found = {number: block for number, each in enumerate(statements)
             if (block := _widening(each)) is not None}  # fmt: skip
    if not found:
        return module
    ((place, block),) = found.items()
    wide, given = block.writes[0].source, block.reads[0].source
    argument = tirx.decl_buffer(wide.shape, str(wide.dtype), name=str(given.name))

    def load(node: Any) -> Any:
        return argument[tuple(node.indices)] if node.source.same_as(wide) else node

    def region(node: Any) -> Any:
        return tirx.BufferRegion(argument, node.region) if node.source.same_as(wide) else node

    rules = [(tvm.ir.TensorLoad, load), (tvm.ir.TensorRegion, region)]
    del statements[place]
    left = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    body = tvm_ffi.structural_map(left, rules)
    allocated = [buffer for buffer in root.alloc_buffers if not buffer.same_as(wide)]
    new = tvm.s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init, allocated,
        root.match_buffers, root.annotations,
    )  # fmt: skip
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
