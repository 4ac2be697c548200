"""Replaces every `If` whose condition is known by the branch that it takes.

ONNX Runtime would do it too, but crashes where branches that it has chosen hold branches.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tunefleet.compiler.frontends.onnx_file import domain_of
from tunefleet.compiler.frontends.onnx_infer import attempt
from tunefleet.compiler.frontends.onnx_inline import write_body

#: A condition is computed by so few nodes.
_MOST_NODES = 64
_MOST_DEPTH = 32


def choose_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the branches that are never taken; `value_info` may tell shapes."""
    for depth in range(_MOST_DEPTH):
        chosen = _chosen(model)
        if not chosen:
            break
        result = onnx.ModelProto()
        result.CopyFrom(model)
        del result.graph.node[:]
        for index, node in enumerate(model.graph.node):
            if index not in chosen:
                result.graph.node.append(node)
                continue
            prefix = f"{node.name or node.output[0]}/{depth}.{index}/"
            branch = _branch(node, "then_branch" if chosen[index] else "else_branch")
            sources = write_body(result.graph, branch, {}, prefix)
            for name, source in zip(node.output, sources, strict=False):
                if name:
                    result.graph.node.append(helper.make_node("Identity", [source], [name]))
        model = result
    return model


def _chosen(model: onnx.ModelProto) -> dict[int, bool]:
    """The condition of each `If` that has a constant one, by the index of its node."""
    nodes = model.graph.node
    branches = [i for i, n in enumerate(nodes) if n.op_type == "If" and not domain_of(n)]
    if not branches:
        return {}
    values = _Values(model)
    conditions = {index: values.condition(nodes[index].input[0]) for index in branches}
    return {index: condition for index, condition in conditions.items() if condition is not None}


def _branch(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(attribute.g for attribute in node.attribute if attribute.name == name)


class _Values:
    """Computes values of a graph that follow from its constants and from known shapes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        graph = model.graph
        self._producer = {name: node for node in graph.node for name in node.output if name}
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for values in (graph.value_info, graph.input)
            for value in values
            if value.type.tensor_type.HasField("shape")
            and all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
        }

    def condition(self, name: str) -> bool | None:
        """A value as a truth, None where it depends on the inputs."""
        known: dict[str, onnx.TensorProto] = {}
        nodes: list[onnx.NodeProto] = []
        if not self._gather(name, nodes, known):
            return None
        if not nodes:
            return bool(numpy_helper.to_array(known[name]).reshape(-1)[0])
        graph = helper.make_graph(
            nodes,
            "condition",
            [],
            [helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, None)],
            list(known.values()),
        )
        model = helper.make_model(graph, opset_imports=self._model.opset_import)
        outputs = attempt(lambda: ReferenceEvaluator(model).run(None, {}))
        return None if outputs is None else bool(np.reshape(outputs[0], -1)[0])

    def _gather(
        self, name: str, nodes: list[onnx.NodeProto], known: dict[str, onnx.TensorProto]
    ) -> bool:
        """Collects what computes a value, in order; whether all of it is constant."""
        begun: set[str] = set()
        made: set[str] = set()
        stack = [(name, False)]
        while stack:
            value, ready = stack.pop()
            node = self._producer.get(value)
            if value in known or value in made:
                continue
            if value in self._tensors:
                known[value] = self._tensors[value]
                continue
            if node is None or domain_of(node):
                return False
            if ready:
                nodes.append(node)
                made.update(node.output)
                continue
            # What is begun and not made waits for itself.
            if value in begun or len(begun) >= _MOST_NODES:
                return False
            shape = self._of_shape(node)
            if shape is not None:
                known[value] = numpy_helper.from_array(shape, value)
                continue
            begun.add(value)
            stack.append((value, True))
            stack += [(source, False) for source in reversed(node.input) if source]
        return True

    def _of_shape(self, node: onnx.NodeProto) -> np.ndarray | None:
        """What a `Shape` or `Size` returns, where the shape that it asks for is known."""
        if node.op_type not in ("Shape", "Size") or node.input[0] not in self._shapes:
            return None
        shape = np.array(self._shapes[node.input[0]], np.int64)
        if node.op_type == "Size":
            return np.array(shape.prod(), np.int64)
        attributes: Mapping[str, int] = {a.name: a.i for a in node.attribute}
        return shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
