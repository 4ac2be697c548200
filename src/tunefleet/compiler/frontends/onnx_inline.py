"""Copies the graph of a node, a branch or the body of a loop, into the graph around it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tunefleet.compiler.frontends.onnx_file import captured, graphs_of


def write_body(
    graph: onnx.GraphProto, body: onnx.GraphProto, inputs: Mapping[str, str], prefix: str
) -> list[str]:
    """Adds the nodes of `body` to `graph`, its own names with `prefix` before them and its inputs
    by the names that they have outside; the names of what it returns."""
    names = dict(inputs)
    names |= {tensor.name: prefix + tensor.name for tensor in body.initializer}
    names |= {name: prefix + name for node in body.node for name in node.output if name}
    for tensor in body.initializer:
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = names[tensor.name]
    for node in body.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = prefix + (node.name or node.op_type)
        _rename(copy, names)
    return [names.get(value.name, value.name) for value in body.output]


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Renames what a node reads and writes, and what its branches take from around them."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for index, name in enumerate(node.output):
        node.output[index] = names.get(name, name)
    for graph in graphs_of(node):
        outer = {name: names[name] for name in captured(graph) if name in names}
        _rename_captured(graph, outer)


def _rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
        for inner in graphs_of(node):
            _rename_captured(inner, {n: names[n] for n in captured(inner) if n in names})
    for value in graph.output:
        value.name = names.get(value.name, value.name)
