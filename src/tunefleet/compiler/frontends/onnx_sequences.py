"""Reads sequences of tensors whose elements are known when the network is imported.

Exporters write them for splits and for lists that loops fill. What an element, the length or the
whole of such a sequence is asked for becomes operators of tensors; who else reads it still can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import TensorProto, helper, numpy_helper

from tunefleet.compiler.frontends.onnx_file import STANDARD, domain_of, opsets_of

#: The version of ONNX from which on sizes and axes are inputs, of `Split` and `Unsqueeze`.
_INPUTS = 13


def without_sequences(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, which reads known sequences no more. `value_info` tells the extents of what is
    split; nodes are in an order in which they can run."""
    if not any(node.op_type in _READERS for node in model.graph.node):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    reader = _Reader(result.graph, opsets_of(model)[STANDARD])
    for node in model.graph.node:
        reader.read(node)
    return result


class _Reader:
    """Goes through the nodes of a graph and writes those of another."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self._graph = graph
        self._opset = opset
        self._constants: dict[str, TensorProto] = {t.name: t for t in graph.initializer}
        self._extents = {
            value.name: [d.dim_value for d in value.type.tensor_type.shape.dim]
            for values in (graph.value_info, graph.input)
            for value in values
        }
        #: The elements of sequences by name.
        self._elements: dict[str, list[str]] = {}

    def read(self, node: onnx.NodeProto) -> None:
        """Writes `node`, or what it comes to."""
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                self._constants[node.output[0]] = attribute.t
        step = None if domain_of(node) else {**_WRITERS, **_READERS}.get(node.op_type)
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        known = step is not None and step(self, node, attrs)
        if not known or node.op_type in _WRITERS:
            self._graph.node.append(node)

    def empty(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        self._elements[node.output[0]] = []
        return True

    def construct(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        self._elements[node.output[0]] = list(node.input)
        return True

    def same(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        if node.input[0] in self._elements:
            self._elements[node.output[0]] = self._elements[node.input[0]]
        return False

    def insert(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        elements = self._elements.get(node.input[0])
        place = self._number(node, 2, len(elements or ()))
        if elements is None or place is None:
            return False
        at = place + len(elements) if place < 0 else place
        self._elements[node.output[0]] = [*elements[:at], node.input[1], *elements[at:]]
        return True

    def erase(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        elements, place = self._elements.get(node.input[0]), self._number(node, 1, -1)
        if not elements or place is None or not -len(elements) <= place < len(elements):
            return False
        at = place % len(elements)
        self._elements[node.output[0]] = [*elements[:at], *elements[at + 1 :]]
        return True

    def split(self, node: onnx.NodeProto, attrs: Mapping[str, int]) -> bool:
        extents, axis = self._extents.get(node.input[0]), attrs.get("axis", 0)
        if not extents or not extents[axis % len(extents)]:
            return False
        extent, name = extents[axis % len(extents)], node.output[0]
        sizes = self._sizes(node, extent)
        if sizes is None:
            return False
        names = [f"{name}/element/{index}" for index in range(len(sizes))]
        self._elements[name] = names
        if len(node.input) < 2 and not attrs.get("keepdims", 1):
            for index, element in enumerate(names):
                place = self._constant(f"{element}/place", [], [index])
                self._write("Gather", [node.input[0], place], [element], axis=axis)
        elif self._opset < _INPUTS:
            self._write("Split", [node.input[0]], names, axis=axis, split=sizes)
        else:
            inputs = [node.input[0], self._constant(f"{name}/sizes", [len(sizes)], sizes)]
            self._write("Split", inputs, names, axis=axis)
        return True

    def at(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        elements, place = self._elements.get(node.input[0]), self._number(node, 1, 0)
        if not elements or place is None or not -len(elements) <= place < len(elements):
            return False
        self._write("Identity", [elements[place]], node.output)
        return True

    def length(self, node: onnx.NodeProto, attrs: Mapping[str, object]) -> bool:
        elements = self._elements.get(node.input[0])
        if elements is None:
            return False
        self._constant(node.output[0], [], [len(elements)])
        return True

    def concat(self, node: onnx.NodeProto, attrs: Mapping[str, int]) -> bool:
        elements, axis = self._elements.get(node.input[0]), attrs["axis"]
        if not elements:
            return False
        if attrs.get("new_axis", 0):
            elements = [
                self._unsqueezed(e, axis, node.output[0], i) for i, e in enumerate(elements)
            ]
        self._write("Concat", elements, node.output, axis=axis)
        return True

    def _unsqueezed(self, element: str, axis: int, name: str, index: int) -> str:
        result = f"{name}/element/{index}"
        if self._opset < _INPUTS:
            self._write("Unsqueeze", [element], [result], axes=[axis])
        else:
            axes = self._constant(f"{result}/axes", [1], [axis])
            self._write("Unsqueeze", [element, axes], [result])
        return result

    def _sizes(self, node: onnx.NodeProto, extent: int) -> list[int] | None:
        if len(node.input) < 2 or not node.input[1]:
            return [1] * extent
        if node.input[1] not in self._constants:
            return None
        given = numpy_helper.to_array(self._constants[node.input[1]])
        if given.ndim:
            return [int(size) for size in given]
        return [min(int(given), extent - start) for start in range(0, extent, int(given))]

    def _number(self, node: onnx.NodeProto, index: int, default: int) -> int | None:
        if index >= len(node.input) or not node.input[index]:
            return default
        tensor = self._constants.get(node.input[index])
        return None if tensor is None else int(numpy_helper.to_array(tensor).reshape(-1)[0])

    def _constant(self, name: str, extents: Sequence[int], values: Sequence[int]) -> str:
        tensor = helper.make_tensor(name, TensorProto.INT64, extents, values)
        self._graph.initializer.append(tensor)
        self._constants[name] = tensor
        return name

    def _write(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: object
    ) -> None:
        self._graph.node.append(helper.make_node(operator, inputs, outputs, **attrs))


_Step = Callable[..., bool]
#: What makes sequences; it stays, for those who read them otherwise.
_WRITERS: dict[str, _Step] = {
    "Identity": _Reader.same,
    "SequenceConstruct": _Reader.construct,
    "SequenceEmpty": _Reader.empty,
    "SequenceErase": _Reader.erase,
    "SequenceInsert": _Reader.insert,
    "SplitToSequence": _Reader.split,
}
_READERS: dict[str, _Step] = {
    "ConcatFromSequence": _Reader.concat,
    "SequenceAt": _Reader.at,
    "SequenceLength": _Reader.length,
}
#: What takes or gives sequences and need not stay for that.
KNOWN = frozenset({*_WRITERS, *_READERS} - {"Identity"})
