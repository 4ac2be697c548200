"""Programs in bfloat16, written in float32.

NumPy has no bfloat16, so none may go from part to part, and TVM has few operators in it. PyTorch
computes one operator in float32 and rounds its result: that is written out here, each rounding as
a cast to bfloat16 and back, and weights are widened when constants are folded.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten
NARROW, WIDE = torch.bfloat16, torch.float32
CAST = torch.ops.prims.convert_element_type.default

#: Operators that give numbers which they were given, and so need no rounding.
_MOVES = (
    aten.cat, aten.chunk, aten.clone, aten.contiguous, aten.embedding, aten.expand, aten.flatten,
    aten.gather, aten.index_select, aten.permute, aten.relu, aten.repeat, aten.reshape,
    aten.select, aten.slice, aten.split, aten.split_with_sizes, aten.squeeze, aten.stack, aten.t,
    aten.transpose, aten.unbind, aten.unflatten, aten.unsqueeze, aten._unsafe_view, aten.view,
)  # fmt: skip


def in_float32(program: ExportedProgram) -> ExportedProgram:
    """The program with its operators of bfloat16 in float32; as it is where there are none, or
    where bfloat16 goes in or out."""
    if not any(_is_narrow(node) for node in program.graph.nodes if node.op == "call_function"):
        return program
    # Operators that change their operands become others.
    program = program.run_decompositions({})
    user_inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        outside = node.op == "output" and any(map(_is_narrow, node.all_input_nodes))
        if outside or (_is_narrow(node) and node.name in user_inputs):
            return program
    _Widening(program.graph).write()
    program.graph_module.recompile()
    return program


def _is_narrow(node: Node) -> bool:
    return any(
        isinstance(value, torch.Tensor) and value.dtype is NARROW
        for value in pytree.tree_leaves(node.meta.get("val"))
    )


class _Widening:
    """Writes the operators of one graph in float32."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        #: What holds the numbers of a value of bfloat16 in float32.
        self._wide: dict[Node, Node] = {}
        #: Values in float32 whose numbers bfloat16 has.
        self._exact: set[Node] = set()

    def write(self) -> None:
        for node in list(self._graph.nodes):
            narrow = _is_narrow(node) or any(map(_is_narrow, node.all_input_nodes))
            if node.op == "call_function" and narrow:
                self._widen(node)

    def _widen(self, node: Node) -> None:
        was_narrow = _is_narrow(node)
        operands = [operand for operand in node.all_input_nodes if _is_narrow(operand)]
        with self._graph.inserting_before(node):
            wide = {operand: self._in_float32(operand) for operand in operands}
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: wide.get(n, n))
        node.args = tuple(map_aggregate(args, _wide_type))
        node.kwargs = {name: map_aggregate(value, _wide_type) for name, value in kwargs.items()}
        if not was_narrow:
            return
        node.meta["val"] = pytree.tree_map(_wide_value, node.meta["val"])
        if not isinstance(node.meta["val"], torch.Tensor):
            return  # its parts are taken out by others
        packet = getattr(node.target, "overloadpacket", node.target)
        moves = packet in (*_MOVES, operator.getitem)
        if moves and all(source in self._exact for source in wide.values()):
            self._exact.add(node)
        with self._graph.inserting_after(node):
            rounded = self._cast(node, NARROW)
        node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
        if node in self._exact:
            self._wide[rounded] = node

    def _in_float32(self, node: Node) -> Node:
        if not isinstance(node.meta["val"], torch.Tensor):
            return node
        if node not in self._wide:
            self._wide[node] = self._cast(node, WIDE)
            self._exact.add(self._wide[node])
        return self._wide[node]

    def _cast(self, node: Node, dtype: torch.dtype) -> Node:
        cast = self._graph.call_function(CAST, (node, dtype))
        cast.meta["val"] = node.meta["val"].to(dtype)
        return cast


def _wide_type(argument: Any) -> Any:
    return WIDE if argument is NARROW else argument


def _wide_value(value: Any) -> Any:
    narrow = isinstance(value, torch.Tensor) and value.dtype is NARROW
    return value.to(WIDE) if narrow else value
