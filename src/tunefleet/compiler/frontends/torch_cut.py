"""Cuts a decomposed program into what is compiled and what stays in PyTorch.

Nodes that nothing converts are grouped into as few segments as possible. Going down from the
inputs, a node is as deep as the number of changes between the two sides on the way to it: nodes of
one depth and side form one part, and a part depends on shallower ones only.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from tunefleet.artifacts.segments import segment_file, segment_name
from tunefleet.compiler.frontends.examples import NUMPY_DTYPES
from tunefleet.compiler.frontends.imported import Segment
from tunefleet.compiler.frontends.torch_graph import allow_any_strides
from tunefleet.compiler.frontends.torch_nodes import flops_of, operators_of

#: Deeper than any node: where shapes depend on values, which never come back.
_LAST = 1 << 30


@dataclass(frozen=True)
class OutsideNodes:
    """Nodes that stay in PyTorch together; `inputs` and `outputs` are nodes with tensors."""

    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]
    reason: str


class CannotCutError(Exception):
    """A tensor would pass between segments that NumPy cannot hold."""


def depths(nodes: Sequence[Node], outside: dict[Node, str]) -> dict[Node, int]:
    """The depth of every node; odd ones are outside. `outside` gets those that follow from a
    value-dependent shape."""
    depth: dict[Node, int] = {}
    for node in nodes:
        if node.target is operator.getitem and node.all_input_nodes[0] in depth:
            source = node.all_input_nodes[0]
            depth[node] = depth[source]
            if source in outside:
                outside[node] = outside[source]
            continue
        before = [depth.get(operand, 0) for operand in node.all_input_nodes]
        if max(before, default=0) >= _LAST or _unknown(node):
            depth[node] = _LAST + 1
            outside.setdefault(node, "a shape depends on values")
            continue
        side = 1 if node in outside else 0
        depth[node] = max((d if d % 2 == side else d + 1 for d in before), default=side)
        if depth[node] % 2 != side:
            depth[node] += 1
    _sink(nodes, outside, depth)
    return depth


def parts(
    nodes: Sequence[Node], outside: dict[Node, str], results: set[Node], constants: set[Node]
) -> list[list[Node] | OutsideNodes]:
    """The nodes in an order in which they can run: lists of nodes to compile, and segments."""
    depth = depths(nodes, outside)
    by_depth: dict[int, list[Node]] = {}
    for node in nodes:
        by_depth.setdefault(depth[node], []).append(node)
    ordered: list[list[Node] | OutsideNodes] = []
    # Others read values too that nobody needs, such as assertions about them.
    wanted = set(nodes)
    for level in sorted(by_depth):
        group = by_depth[level]
        if level % 2:
            ordered.append(_outside(group, outside, results, constants, wanted))
        else:
            ordered.append(group)
    return ordered


def save(
    part: OutsideNodes, constants: dict[Node, Any], module: GraphModule, folder: Path
) -> Segment:
    """Writes the segment's file and says what it is."""
    cut = _module(part, constants, module)
    examples = tuple(_example(node.meta["val"]) for node in part.inputs)
    with torch.no_grad():
        program = torch.export.export(cut, examples, strict=False)
    content = sha256(operators_of(cut).encode())
    content.update(str([(e.shape, e.dtype) for e in examples]).encode())
    for name, tensor in sorted(cut.named_buffers()):
        content.update(name.encode())
        content.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    name = segment_name(content.hexdigest())
    path = segment_file(folder, name, ".pt2")
    if not path.exists():
        torch.export.save(program, path)
    computed = [n for n in part.nodes if n.target is not operator.getitem]
    shown = tuple(described(n) for n in computed)
    return Segment(name, "PyTorch", shown, part.reason, sum(flops_of(n) for n in computed))


def described(node: Node) -> str:
    """A node as `operator name`."""
    return f"{node.target} {node.name}"


def _unknown(node: Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
    return any(
        isinstance(v, symbolic)
        or (isinstance(v, torch.Tensor) and not all(isinstance(e, int) for e in v.shape))
        for v in values
    )


def _sink(nodes: Sequence[Node], outside: dict[Node, str], depth: dict[Node, int]) -> None:
    """Outside nodes whose results go to the last segment only are computed there."""
    for node in reversed(nodes):
        if node not in outside or not node.users:
            continue
        if all(depth.get(user, 0) >= _LAST for user in node.users):
            depth[node] = _LAST + 1


def _outside(
    group: list[Node],
    outside: dict[Node, str],
    results: set[Node],
    constants: set[Node],
    wanted: set[Node],
) -> OutsideNodes:
    inside = set(group)
    elsewhere = wanted - inside
    inputs: dict[Node, None] = {}
    for node in group:
        for operand in node.all_input_nodes:
            if operand not in inside and operand not in constants and operand.op != "get_attr":
                inputs[operand] = None
    outputs = [n for n in group if n in results or any(u in elsewhere for u in n.users)]
    outputs = [n for n in outputs if not isinstance(n.meta.get("val"), tuple | list)]
    for node in (*inputs, *outputs):
        value = node.meta.get("val")
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        if dtype not in NUMPY_DTYPES:
            raise CannotCutError(f"{node.name} is {dtype or type(value).__name__}")
    reasons = dict.fromkeys(outside[node] for node in group if node in outside)
    return OutsideNodes(group, list(inputs), outputs, "; ".join(list(reasons)[:3]))


def _module(part: OutsideNodes, constants: dict[Node, Any], module: GraphModule) -> GraphModule:
    """The nodes of a part as a module of their own: tensors in, a tuple of tensors out."""
    graph, root = Graph(), torch.nn.Module()
    copies: dict[Node, Any] = {}
    for index, node in enumerate(part.inputs):
        copies[node] = graph.placeholder(f"x{index}")
    for node in part.nodes:
        for operand in node.all_input_nodes:
            if operand in copies:
                continue
            name = f"c{len(copies)}"
            value = constants.get(operand)
            if isinstance(value, bool | int | float):
                copies[operand] = value
                continue
            if operand.op == "get_attr" and operand not in constants:
                value = getattr(module, str(operand.target))
                setattr(root, name, value)
            else:
                root.register_buffer(name, constants[operand].detach())
            copies[operand] = graph.get_attr(name)
        copies[node] = graph.node_copy(node, copies.__getitem__)
    allow_any_strides(graph)
    graph.output(tuple(map_arg(node, copies.__getitem__) for node in part.outputs))
    return GraphModule(root, graph)


def _example(value: torch.Tensor) -> torch.Tensor:
    return torch.zeros([int(e) for e in value.shape], dtype=value.dtype)
