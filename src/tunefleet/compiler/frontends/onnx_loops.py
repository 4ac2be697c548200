"""Unrolls loops whose number of rounds is known when the network is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from tunefleet.compiler.frontends.onnx_file import STANDARD, domain_of, graphs_of, opsets_of
from tunefleet.compiler.frontends.onnx_inline import write_body
from tunefleet.compiler.frontends.onnx_rounds import rounds_of

#: A loop is written out up to so many rounds, and up to so many nodes in all.
_MOST_ROUNDS = 128
_MOST_NODES = 20_000
#: The version of ONNX from which on `Unsqueeze` takes its axes as an input.
_AXES_ARE_INPUTS = 13
#: The version from which on a `Scan` has the form that is known here.
_SCAN_HAS_NO_BATCH = 9


def unroll(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every `Loop` of which constants decide the number of rounds, and every `Scan`
    written out. `value_info` tells the lengths of what is scanned."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                constants[node.output[0]] = attribute.t
    rounds = {
        index: _rounds(node, constants, model) if node.op_type == "Loop" else _scanned(node, model)
        for index, node in enumerate(model.graph.node)
        if node.op_type in ("Loop", "Scan") and not domain_of(node)
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
            written = _Unrolled if node.op_type == "Loop" else _UnrolledScan
            written(result.graph, node, prefix, opsets_of(model)[STANDARD]).write(count)
        else:
            result.graph.node.append(node)
    return result


def _rounds(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], model: onnx.ModelProto
) -> int | None:
    """How often the body runs, None where that depends on values or is too often."""
    count = rounds_of(node, constants, model, _MOST_ROUNDS)
    body = next(iter(graphs_of(node)))
    return count if count and len(body.node) * count <= _MOST_NODES else None


def _scanned(node: onnx.NodeProto, model: onnx.ModelProto) -> int | None:
    """How many elements a `Scan` goes through, None where that is not known or too many."""
    if opsets_of(model)[STANDARD] < _SCAN_HAS_NO_BATCH:
        return None
    form, graph = _ScanForm.of(node), model.graph
    name, axis = node.input[form.carried], form.input_axes[0]
    shapes = {
        value.name: value.type.tensor_type.shape.dim
        for values in (graph.value_info, graph.input)
        for value in values
    }
    dims = shapes.get(name, ())
    if not dims:
        return None
    count = dims[axis % len(dims)].dim_value
    body = next(iter(graphs_of(node)))
    fits = 0 < count <= _MOST_ROUNDS and len(body.node) * count <= _MOST_NODES
    return int(count) if fits else None


@dataclass(frozen=True)
class _ScanForm:
    """What the attributes of a `Scan` say: how many values are carried from round to round, the
    axis of each sequence and whether it is read, or written, from its end."""

    carried: int
    input_axes: tuple[int, ...]
    input_reversed: tuple[bool, ...]
    output_axes: tuple[int, ...]
    output_reversed: tuple[bool, ...]

    @classmethod
    def of(cls, node: onnx.NodeProto) -> _ScanForm:
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        sequences = int(attrs["num_scan_inputs"])
        carried = len(node.input) - sequences
        outputs = len(node.output) - carried

        def listed(name: str, count: int) -> tuple[int, ...]:
            return tuple(attrs.get(name) or [0] * count)

        return cls(
            carried,
            listed("scan_input_axes", sequences),
            tuple(map(bool, listed("scan_input_directions", sequences))),
            listed("scan_output_axes", outputs),
            tuple(map(bool, listed("scan_output_directions", outputs))),
        )


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
            for scan, result in zip(scans, results[len(carried) :], strict=True):
                scan.append(self._stackable(result, index))
        self._return(carried, [(scan, 0) for scan in scans])

    def _return(self, carried: list[str], stacks: list[tuple[list[str], int]]) -> None:
        """Writes the outputs of the loop: what was carried to its end, and what its rounds made,
        along an axis."""
        made = [helper.make_node("Identity", [source], []) for source in carried]
        made += [helper.make_node("Concat", names, [], axis=axis) for names, axis in stacks]
        for name, node in zip(self._loop.output, made, strict=False):
            if name:
                node.output.append(name)
                self._graph.node.append(node)

    def _round(self, index: int, carried: list[str]) -> list[str]:
        """Writes one round; the names of what the body returns, its condition left out."""
        prefix = f"{self._prefix}/{index}/"
        number = prefix + self._body.input[0].name
        condition = prefix + self._body.input[1].name
        self._constant(number, index, onnx.TensorProto.INT64, self._extents(0))
        self._constant(condition, 1, onnx.TensorProto.BOOL, self._extents(1))
        names = {self._body.input[0].name: number, self._body.input[1].name: condition}
        names |= {
            value.name: source for value, source in zip(self._body.input[2:], carried, strict=True)
        }
        return write_body(self._graph, self._body, names, prefix)[1:]

    def _extents(self, index: int) -> list[int]:
        """Of the number of the round, or of the condition: a body may want a vector of one."""
        return [1] * len(self._body.input[index].type.tensor_type.shape.dim)

    def _constant(self, name: str, value: int, kind: int, extents: Sequence[int] = ()) -> None:
        self._graph.initializer.append(helper.make_tensor(name, kind, extents, [value]))

    def _stackable(self, name: str, index: int, axis: int = 0) -> str:
        """`name` with another dimension, of one."""
        result = f"{self._prefix}/{index}/stacked/{name}"
        if self._opset < _AXES_ARE_INPUTS:
            node = helper.make_node("Unsqueeze", [name], [result], axes=[axis])
            self._graph.node.append(node)
            return result
        axes = f"{result}/axes"
        kind = onnx.TensorProto.INT64
        self._graph.initializer.append(helper.make_tensor(axes, kind, [1], [axis]))
        self._graph.node.append(helper.make_node("Unsqueeze", [name, axes], [result]))
        return result


class _UnrolledScan(_Unrolled):
    """Writes the rounds of one scan over sequences into a graph."""

    def write(self, count: int) -> None:
        form, loop = _ScanForm.of(self._loop), self._loop
        carried = list(loop.input[: form.carried])
        stacks: list[list[str]] = [[] for _ in form.output_axes]
        for index in range(count):
            prefix = f"{self._prefix}/{index}/"
            elements = [
                self._element(name, count - 1 - index if last_first else index, axis, prefix)
                for name, axis, last_first in zip(
                    loop.input[form.carried :], form.input_axes, form.input_reversed, strict=True
                )
            ]
            inner = (value.name for value in self._body.input)
            names = dict(zip(inner, [*carried, *elements], strict=True))
            results = write_body(self._graph, self._body, names, prefix)
            carried = results[: form.carried]
            for stack, name, axis in zip(
                stacks, results[form.carried :], form.output_axes, strict=True
            ):
                stack.append(self._stackable(name, index, axis))
        ordered = [
            stack[::-1] if last_first else stack
            for stack, last_first in zip(stacks, form.output_reversed, strict=True)
        ]
        self._return(carried, list(zip(ordered, form.output_axes, strict=True)))

    def _element(self, name: str, place: int, axis: int, prefix: str) -> str:
        """The element of a sequence at a place of its axis."""
        result, number = f"{prefix}element/{name}", f"{prefix}place/{name}"
        self._constant(number, place, onnx.TensorProto.INT64)
        self._graph.node.append(helper.make_node("Gather", [name, number], [result], axis=axis))
        return result
