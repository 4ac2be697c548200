"""Scheduled programs without the packing of their weights, which happens when a network is
compiled."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.space.product_steps import PACKED
from tunefleet.compiler.space.products import WIDE_WEIGHTS
from tunefleet.compiler.space.statements import (
    reading,
    realized,
    statements_of,
    with_statements,
)
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
