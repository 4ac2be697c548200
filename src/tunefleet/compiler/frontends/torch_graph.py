"""Simplifies a decomposed exported program before TVM sees it.

What does not depend on the inputs (transposed weights, position ids, attention masks) is
evaluated here by torch in milliseconds; TVM would compile a function for every shape of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from tunefleet.compiler.frontends.torch_quantized import is_dequantization

aten = torch.ops.aten

#: A folded constant may have this many elements, or as many as the largest of its operands.
_MOST_ELEMENTS = 1 << 20
_VIEWS = frozenset({aten.view.default, aten._unsafe_view.default})
_SHAPE_ONLY = frozenset({aten.expand.default, aten.reshape.default, *_VIEWS})
_COPIES = frozenset({aten.clone.default, aten.alias.default, aten.detach.default})
_PRODUCTS = frozenset({aten.bmm.default, aten.mm.default})


def simplify(program: ExportedProgram) -> dict[Node, Tensor]:
    """Folds constants and drops operators that do nothing, in place. Returns the constants that
    are still used, by node: weights and what was folded.

    Softmax guards against rows that are masked out altogether go too where the mask is constant
    and has no such row; products are taken to be finite there.
    """
    values = _stored(program)
    with torch.no_grad():
        for node in list(program.graph.nodes):
            if node.op != "call_function":
                continue
            _drop_empty(node)
            same = _same_as(node, values)
            if same is not None:
                node.replace_all_uses_with(same)
            elif (value := _value(node, values)) is not None:
                values[node] = value
    program.graph.eliminate_dead_code()
    kept = set(program.graph.nodes)
    return {node: value for node, value in values.items() if node in kept}


def allow_any_strides(graph: Graph) -> None:
    """Makes a reshape of every view: operands may have other strides than when torch chose it."""
    for node in graph.nodes:
        if node.target in _VIEWS:
            node.target = aten.reshape.default


def _stored(program: ExportedProgram) -> dict[Node, Any]:
    """The value of every placeholder that is a parameter, a buffer or a constant."""
    stored = {**program.state_dict, **program.constants}
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    return {
        placeholders[spec.arg.name]: stored[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT and spec.target in stored
    }


def _drop_empty(node: Node) -> None:
    """Leaves what is empty out of a concatenation."""
    if node.target is not aten.cat.default:
        return
    operands: Any = node.args[0]
    full = [o for o in operands if not isinstance(o, Node) or not _is_empty(o.meta["val"])]
    if 0 < len(full) < len(operands):
        node.args = (full, *node.args[1:])


def _is_empty(value: Tensor) -> bool:
    """Whether a tensor has no elements, whatever extents that depend on values are."""
    return any(isinstance(extent, int) and extent == 0 for extent in value.shape)


def _same_as(node: Node, values: dict[Node, Any]) -> Node | None:
    """The operand that `node` is always equal to, if there is one."""
    for operand in _equal_operands(node, values):
        if isinstance(operand, Node) and _looks(operand) == _looks(node):
            return operand
    return None


def _equal_operands(node: Node, values: dict[Node, Any]) -> list[Any]:
    args: Any = node.args
    if node.target in _SHAPE_ONLY or node.target in _COPIES:
        return [args[0]]
    if node.target is aten.cat.default and len(args[0]) == 1:
        return list(args[0])
    if node.target is aten.add.Tensor:
        left, right = args[:2]
        return [a for a, b in ((left, right), (right, left)) if _all_equal(b, values, 0)]
    if node.target is aten.where.self:
        condition, yes, no = args
        chosen = [(yes, True), (no, False)]
        return [a for a, truth in chosen if _all_equal(condition, values, truth)]
    return []


def _all_equal(operand: Any, values: dict[Node, Any], number: float) -> bool:
    value = values.get(operand) if isinstance(operand, Node) else None
    return isinstance(value, Tensor) and bool((value == number).all())


def _looks(node: Node) -> tuple[Any, ...] | None:
    value = node.meta.get("val")
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else None


def _value(node: Node, values: dict[Node, Any]) -> Any:
    """What `node` evaluates to whatever the inputs are, or None."""
    operands = node.all_input_nodes
    if not all(operand in values for operand in operands):
        return _masked_scores(node, values)
    seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    if seeded or is_dequantization(node):
        return None
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    # A folded operand may have other strides than torch assumed when it chose `view`.
    target: Any = aten.reshape.default if node.target in _VIEWS else node.target
    value = target(*args, **kwargs)
    limit = max(_MOST_ELEMENTS, _largest([values[operand] for operand in operands]))
    return None if _largest(value) > limit else value


def _largest(value: Any) -> int:
    """Elements of the largest of the tensors that a value holds: itself, or those of a tuple."""
    return max((t.numel() for t in pytree.tree_leaves(value) if isinstance(t, Tensor)), default=0)


def _masked_scores(node: Node, values: dict[Node, Any]) -> Tensor | None:
    """Where the attention scores that `node` compares with minus infinity are masked out."""
    if node.target is not aten.eq.Scalar or node.args[1] != float("-inf"):
        return None
    scores, shape = node.args[0], node.meta["val"].shape
    if not isinstance(scores, Node):
        return None
    if _is_product(scores, values):
        return torch.zeros((), dtype=torch.bool).expand(shape)
    if scores.target is aten.add.Tensor:
        product, mask = scores.args[:2]
        value = values.get(mask) if isinstance(mask, Node) else None
        if isinstance(value, Tensor) and _is_product(product, values):
            return (value == float("-inf")).expand(shape)
    return None


def _is_product(node: Any, values: dict[Node, Any]) -> bool:
    """Whether `node` is a matrix product, possibly scaled and reshaped: finite, then."""
    while isinstance(node, Node) and node.target in (*_SHAPE_ONLY, aten.mul.Tensor):
        if node.target is aten.mul.Tensor and isinstance(node.args[1], Node):
            return False
        node = node.args[0]
    return isinstance(node, Node) and node.target in _PRODUCTS
