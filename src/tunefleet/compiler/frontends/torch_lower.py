"""Decompositions: an exported program in the operators that can be compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._decomp import decomposition_table
from torch.fx import Node

from tunefleet.compiler.frontends.torch_bfloat16 import in_float32
from tunefleet.compiler.frontends.torch_complex import in_pairs
from tunefleet.compiler.frontends.torch_complex_rules import RULES
from tunefleet.compiler.frontends.torch_decompositions import DECOMPOSITIONS
from tunefleet.compiler.frontends.torch_graph import allow_any_strides, simplify
from tunefleet.compiler.frontends.torch_nodes import PACKED, RECURRENT
from tunefleet.compiler.frontends.torch_quantized import decomposition
from tunefleet.compiler.frontends.torch_translate import CompileCheck
from tunefleet.errors import raise_mistake

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten

#: A recurrent layer of packed sequences with more rows than this stays whole.
MOST_ROWS = 512
#: TVM has these as one operator; what torch makes of them gathers pixel by pixel.
_KEPT = (aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec)
#: TVM converts these to something else.
_WRONG = (aten.celu.default,)
_MOST_ROUNDS = 3


def lower(
    program: ExportedProgram, check: CompileCheck
) -> tuple[ExportedProgram, dict[Node, torch.Tensor], dict[Node, str]]:
    """The decomposed program, its constants by node, and why each node that cannot be compiled
    cannot.

    What is left by torch's usual decompositions and cannot be compiled is decomposed further, as
    far as torch knows how to.
    """
    program = in_float32(program)
    allow_any_strides(program.graph)
    program.graph_module.recompile()
    program = in_pairs(program.run_decompositions(_table(program)), RULES)
    tried: set[Any] = set()
    for _ in range(_MOST_ROUNDS):
        values = simplify(program)
        refused = refusals(program, values, check)
        more = {n.target for n in refused if isinstance(n.target, torch._ops.OpOverload)} - tried
        table = {target: d for target in more if (d := _decomposition(target)) is not None}
        if not table:
            return program, values, refused
        tried |= more
        allow_any_strides(program.graph)
        try:
            # With the usual ones for what these decompositions are made of.
            program = in_pairs(program.run_decompositions(_table(program) | table), RULES)
        except Exception as exc:
            raise_mistake(exc)
            # A decomposition that fails on these operands says nothing of the program.
            return program, values, refused
    values = simplify(program)
    return program, values, refusals(program, values, check)


def refusals(
    program: ExportedProgram, values: dict[Node, torch.Tensor], check: CompileCheck
) -> dict[Node, str]:
    """Why each node that depends on the inputs and cannot be compiled cannot."""
    reasons = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or node in values:
            continue
        refusal = check.refusal(node, values)
        if refusal is not None:
            reasons[node] = refusal
    return reasons


def _table(program: ExportedProgram) -> dict[Any, Any]:
    table: Any = torch.export.default_decompositions()
    # A recurrent layer is one program; torch makes as many copies as there are steps.
    for kept in (*_KEPT, *RECURRENT):
        table.pop(kept, None)
    for wrong in _WRONG:
        table[wrong] = decomposition_table[wrong]
    for node in program.graph.nodes:
        if node.target in PACKED and _rows(node) > MOST_ROWS:
            table.pop(node.target, None)
    decompositions: dict[Any, Any] = table
    return decompositions


def _rows(node: Node) -> int:
    """Steps of all sequences of a packed batch."""
    data: Any = node.args[0]
    return int(data.meta["val"].shape[0])


def _decomposition(target: Any) -> Any:
    """How an operator is written in terms of others; a view would become as_strided, which says
    less."""
    is_view = any(a.alias_info is not None for a in target._schema.arguments)
    if is_view:
        return None
    return DECOMPOSITIONS.get(target) or decomposition_table.get(target) or decomposition(target)
