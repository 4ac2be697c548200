"""Unrolls loops whose number of rounds is known when the network is imported."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, numpy_helper

from tunefleet.compiler.frontends.onnx_file import (
    STANDARD,
    captured,
    domain_of,
    graphs_of,
    opsets_of,
)

#: A loop is written out up to so many rounds, and up to so many nodes in all.
_MOST_ROUNDS = 128
_MOST_NODES = 20_000
#: The version of ONNX from which on `Unsqueeze` takes its axes as an input.
_AXES_ARE_INPUTS = 13


def unroll(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every `Loop` of a constant number of rounds, that nothing ends early, written
    out."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                constants[node.output[0]] = attribute.t
    rounds = {
        index: _rounds(node, constants)
        for index, node in enumerate(model.graph.node)
        if node.op_type == "Loop" and not domain_of(node)
    }
    if not any(rounds.values()):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for index, node in enumerate(model.graph.node):
        count = rounds.get(index)
        if count:
            prefix = f"{node.name or node.output[0]}/{index}"
            _Unrolled(result.graph, node, prefix, opsets_of(model)[STANDARD]).write(count)
        else:
            result.graph.node.append(node)
    return result


def _scalar(name: str, constants: Mapping[str, onnx.TensorProto]) -> int | None:
    tensor = constants.get(name)
    return None if tensor is None else int(numpy_helper.to_array(tensor).reshape(-1)[0])


def _rounds(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> int | None:
    """How often the body runs, None where that depends on values or is too often."""
    count = _scalar(node.input[0], constants)
    if count is None or not 0 < count <= _MOST_ROUNDS:
        return None
    if len(node.input) > 1 and node.input[1] and _scalar(node.input[1], constants) != 1:
        return None
    body = next(iter(graphs_of(node)))
    if len(body.node) * count > _MOST_NODES or not _goes_on(body):
        return None
    return count


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the condition that a body returns is the one it was given, or a constant true."""
    name = body.output[0].name
    sources = {node.output[0]: node for node in body.node if node.output}
    constants = {tensor.name: tensor for tensor in body.initializer}
    while name in sources and sources[name].op_type == "Identity":
        name = sources[name].input[0]
    if name == body.input[1].name:
        return True
    node = sources.get(name)
    if node is not None and node.op_type == "Constant":
        constants[name] = next((a.t for a in node.attribute if a.name == "value"), None)
    return constants.get(name) is not None and _scalar(name, constants) == 1


class _Unrolled:
    """Writes the rounds of one loop into a graph."""

    def __init__(
        self, graph: onnx.GraphProto, loop: onnx.NodeProto, prefix: str, opset: int
    ) -> None:
        self._graph = graph
        self._loop = loop
        self._prefix = prefix
        self._opset = opset
        self._body = next(iter(graphs_of(loop)))

    def write(self, count: int) -> None:
        body, loop = self._body, self._loop
        carried = list(loop.input[2:])
        scans: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
        for index in range(count):
            results = self._round(index, carried)
            carried = results[: len(carried)]
            for found, result in zip(scans, results[len(carried) :], strict=True):
                found.append(self._stackable(result, index))
        for name, source in zip(loop.output, carried, strict=False):
            if name:
                self._graph.node.append(helper.make_node("Identity", [source], [name]))
        for name, found in zip(loop.output[len(carried) :], scans, strict=False):
            if name:
                self._graph.node.append(helper.make_node("Concat", found, [name], axis=0))

    def _round(self, index: int, carried: list[str]) -> list[str]:
        """Writes one round; the names of what the body returns, its condition left out."""
        prefix = f"{self._prefix}/{index}/"
        number = prefix + self._body.input[0].name
        condition = prefix + self._body.input[1].name
        self._constant(number, index, onnx.TensorProto.INT64)
        self._constant(condition, 1, onnx.TensorProto.BOOL)
        names = {self._body.input[0].name: number, self._body.input[1].name: condition}
        names |= {
            value.name: source for value, source in zip(self._body.input[2:], carried, strict=True)
        }
        names |= {t.name: prefix + t.name for t in self._body.initializer}
        names |= {n: prefix + n for node in self._body.node for n in node.output if n}
        for tensor in self._body.initializer:
            self._graph.initializer.add().CopyFrom(tensor)
            self._graph.initializer[-1].name = names[tensor.name]
        for node in self._body.node:
            copy = self._graph.node.add()
            copy.CopyFrom(node)
            copy.name = prefix + (node.name or node.op_type)
            _rename(copy, names)
        return [names.get(value.name, value.name) for value in self._body.output[1:]]

    def _constant(self, name: str, value: int, kind: int) -> None:
        self._graph.initializer.append(helper.make_tensor(name, kind, [], [value]))

    def _stackable(self, name: str, index: int) -> str:
        """`name` with a leading dimension of one."""
        result = f"{self._prefix}/{index}/stacked/{name}"
        if self._opset < _AXES_ARE_INPUTS:
            node = helper.make_node("Unsqueeze", [name], [result], axes=[0])
            self._graph.node.append(node)
            return result
        axes = f"{result}/axes"
        self._graph.initializer.append(helper.make_tensor(axes, onnx.TensorProto.INT64, [1], [0]))
        self._graph.node.append(helper.make_node("Unsqueeze", [name, axes], [result]))
        return result


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
