"""A prepared graph as a Relax module that calls segments for what is not converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from tunefleet.compiler.frontends.imported import Segment
from tunefleet.compiler.frontends.onnx_cut import GraphPart, Wiring, cut
from tunefleet.compiler.frontends.onnx_file import OnnxWeights, graphs_of, used
from tunefleet.compiler.frontends.onnx_graph import Importer
from tunefleet.compiler.frontends.onnx_refusal import Refusal
from tunefleet.compiler.frontends.onnx_segments import flops, title, write_segment
from tunefleet.compiler.frontends.onnx_trial import failures
from tunefleet.compiler.frontends.onnx_types import NOTHING_KNOWN, ValueType, types_of
from tunefleet.errors import InputError

if TYPE_CHECKING:
    import tvm

#: A node is cheap up to so many elements that it writes.
_FEW_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class ConvertedNetwork:
    """A module, the segments that it calls, and the types of the values of the graph."""

    mod: tvm.IRModule
    segments: tuple[Segment, ...]
    types: dict[str, ValueType]


def build_network(
    model: onnx.ModelProto, weights: OnnxWeights, folder: Path, what: str, *, whole: bool
) -> ConvertedNetwork:
    """Converts what can be converted. Raises InputError with `whole` where that is not all."""
    builder = _Network(model, weights, folder)
    mod, reasons = builder.survey()
    reasons |= failures(model, weights, builder.types, builder.by_tvm - reasons.keys())
    if reasons and whole:
        raise _not_whole(what, model, reasons, builder.types)
    if not reasons:
        return ConvertedNetwork(mod, (), builder.types)
    while True:
        parts = builder.parts(reasons)
        mod, segments, refused = builder.assemble(parts, reasons)
        if not refused:
            return ConvertedNetwork(mod, segments, builder.types)
        reasons |= refused


class _Network:
    def __init__(self, model: onnx.ModelProto, weights: OnnxWeights, folder: Path) -> None:
        self._model = model
        self._nodes = list(model.graph.node)
        self._weights = weights
        self._folder = folder
        self._constants: dict[str, Any] = {}
        self._initial = {tensor.name for tensor in model.graph.initializer}
        self.types = types_of(model, weights)
        self.by_tvm: set[int] = set()

    def survey(self) -> tuple[tvm.IRModule, dict[int, Refusal]]:
        """Tries every node: why those that cannot be converted cannot, by their index, and the
        module, which is of use if there are none."""
        reasons: dict[int, Refusal] = {}
        importer = self._importer()

        def write() -> None:
            for index, node in enumerate(self._nodes):
                try:
                    importer.convert(node)
                except Refusal as refusal:
                    reasons[index] = refusal.told()
                    importer.leave(node)

        mod = importer.build(write)
        self.types = importer.types
        self.by_tvm = {i for i, node in enumerate(self._nodes) if node.name in importer.by_tvm}
        return mod, reasons

    def parts(self, reasons: dict[int, Refusal]) -> list[GraphPart]:
        wirings = [
            Wiring(tuple(used(n)), tuple(name for name in n.output if name), self._is_cheap(n))
            for n in self._nodes
        ]
        names = {name for wiring in wirings for name in (*wiring.inputs, *wiring.outputs)}
        uncrossable = {
            name
            for name in names
            if self.types.get(name, NOTHING_KNOWN).dtype is None and not self._is_constant(name)
        }
        return cut(wirings, reasons.keys(), uncrossable)

    def assemble(
        self, parts: Sequence[GraphPart], reasons: dict[int, Refusal]
    ) -> tuple[tvm.IRModule, tuple[Segment, ...], dict[int, Refusal]]:
        """The module of these parts, its segments, and what was refused after all: in other
        company a node may read something else, such as a shape that is no longer a constant."""
        refused: dict[int, Refusal] = {}
        segments: list[Segment] = []
        importer = self._importer()
        told = {self._nodes[index].name: reason for index, reason in reasons.items()}

        def write() -> None:
            for part in parts:
                if part.outside:
                    segments.append(self._write(importer, part, told))
                    continue
                for index in part.nodes:
                    try:
                        importer.convert(self._nodes[index])
                    except Refusal as refusal:
                        refused[index] = refusal.told()
                        importer.leave(self._nodes[index])

        mod = importer.build(write)
        return mod, tuple(segments), refused

    def _write(self, importer: Importer, part: GraphPart, told: dict[str, Refusal]) -> Segment:
        nodes = [self._nodes[index] for index in part.nodes]
        inside = set(part.nodes)
        wanted = {value.name for value in self._model.graph.output}
        for index, node in enumerate(self._nodes):
            if index not in inside:
                wanted.update(used(node))
        written = write_segment(
            self._model, nodes, wanted, self._weights, importer.types, told, self._folder
        )
        importer.call(written.segment.name, written.inputs, written.outputs)
        return written.segment

    def _importer(self) -> Importer:
        return Importer(self._model, self._weights, self.types, self._constants)

    def _is_constant(self, name: str) -> bool:
        return name in self._weights or name in self._initial

    def _is_cheap(self, node: onnx.NodeProto) -> bool:
        known = [self.types.get(name, NOTHING_KNOWN) for name in node.output if name]
        if any(not each.static for each in known) or any(True for _ in graphs_of(node)):
            return False
        small = sum(each.size for each in known) <= _FEW_ELEMENTS
        return small and flops(node, self.types) <= _FEW_ELEMENTS


def _not_whole(
    what: str, model: onnx.ModelProto, reasons: dict[int, Refusal], types: dict[str, ValueType]
) -> InputError:
    nodes = list(model.graph.node)
    told = [
        f"{title(nodes[index])} of {_shapes(nodes[index], types)} ({refusal})"
        for index, refusal in reasons.items()
        if not refusal.follows
    ]
    first = told[0] if len(told[0]) <= 180 else told[0][:177] + "..."
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    return InputError(
        f"{what} cannot be compiled whole, {len(reasons)} of {len(nodes)} nodes would stay in "
        f"ONNX Runtime: {first}{more}",
        cure="replace them in the network, or let them stay: leave out --whole",
    )


def _shapes(node: onnx.NodeProto, types: dict[str, ValueType]) -> str:
    return ", ".join(str(types.get(name, NOTHING_KNOWN)) for name in node.input if name)
