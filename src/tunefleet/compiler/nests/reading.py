"""Extracts the template of a sketch from one of its programs before postprocessing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tunefleet.compiler.code.loop_nests import statements_of
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.nests.anchors import anchors_of, produced
from tunefleet.compiler.nests.bodies import Buffers, work_of
from tunefleet.compiler.nests.template import (
    Annotated,
    Axis,
    Block,
    BufferReference,
    Copied,
    Nested,
    Template,
    TilePart,
    Unanswered,
    Work,
)
from tunefleet.compiler.nests.tracking import REDUCTION, SPATIAL, Nest, Tracked
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import trace_text
from tunefleet.core.target import CpuTarget, Target
from tunefleet.features.behaviours import Compute, Run, Statement
from tunefleet.search.choices import Location
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
tirx = tvm.tirx

#: Instructions whose effect is visible in the program or tracked here.
_KNOWN = {
    "GetSBlock", "GetLoops", "GetProducers", "GetConsumers", "GetChildBlocks", "GetOutputBlocks",
    "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "ComputeAt", "Split",
    "ReverseComputeAt", "Reorder", "Fuse", "Annotate", "Unannotate", "ComputeInline",
    "ReverseComputeInline", "CacheWrite", "CacheRead", "EnterPostproc", "TransformLayout",
    "Vectorize", "Unroll", "Parallel", "DecomposeReduction", "Tensorize", "Bind",
}  # fmt: skip
#: The annotation of a block that packs weights, which happens when a network is compiled.
_PACKS = "meta_schedule.layout_rewrite_preproc"
_ASKED = "meta_schedule."
_RUNS = {0: Run.SERIAL, 1: Run.PARALLEL, 2: Run.VECTORIZED, 3: Run.UNROLLED, 4: Run.BOUND}


def template_of(module: Any, target: Target, sketch: Sketch, inlined: bool) -> Template:
    """The template of a form of a task. `inlined`: for the programs in which the block with a
    compute location is inlined.

    Raises Unanswered for a sketch of an unsupported kind.
    """
    kinds = {instruction[0] for instruction in sketch.instructions}
    if kinds - _KNOWN:
        raise Unanswered(f"instructions {sorted(kinds - _KNOWN)}")
    if sum(instruction[0] == "Tensorize" for instruction in sketch.instructions) > 1:
        raise Unanswered("tensor instructions whose sums have no address")
    located = [i for i, c in enumerate(sketch.choices) if isinstance(c, Location)]
    if len(located) > 1:
        raise Unanswered("several compute locations")
    tracked = Tracked(module, sketch, -2 if inlined else -1)
    tracked.replay()
    return _Reader(target, tracked).read(located[0] if located and not inlined else None)


@dataclass
class _Reader:
    target: Target
    tracked: Tracked
    #: The statements of blocks that are equal in all programs, by block name.
    given: dict[str, tuple[Statement, ...]] = field(default_factory=dict)

    def read(self, location: int | None) -> Template:
        nests = [n for n in self.tracked.nests() if _PACKS not in n.realize.block.annotations]
        packing = [
            n.realize.block for n in self.tracked.nests() if _PACKS in n.realize.block.annotations
        ]
        for nest in nests:
            self.tracked.axes_of(nest.realize, nest.path)
        tensor = any(kind == "Tensorize" for kind, *_ in self.tracked.sketch.instructions)
        packed = self.target.kind == CpuTarget.kind and not tensor
        buffers = Buffers(self.tracked.schedule.mod["main"], packing, packed)
        order = [str(nest.realize.block.name_hint) for nest in nests]
        self.given = self._given(nests)
        blocks = [self._block(nest, buffers) for nest in nests]
        slots = [
            replace(s, block=order.index(self.tracked.names[s.block])) if isinstance(s, Axis) else s
            for s in self.tracked.slots
        ]
        loops: list[Nested] = []
        numbers: dict[Any, int] = {}
        for nest in nests:
            for loop in nest.path:
                if loop.loop_var not in numbers:
                    numbers[loop.loop_var] = len(loops)
                    bound = loop.thread_binding
                    loops.append(
                        Nested(
                            self.tracked.known[loop.loop_var],
                            _RUNS[int(loop.kind)],
                            str(bound.thread_tag) if bound is not None else "",
                        )
                    )
        paths = tuple(tuple(numbers[loop.loop_var] for loop in nest.path) for nest in nests)
        template = Template(
            tuple(slots), self.tracked.splits, tuple(loops), paths, tuple(blocks),
            tuple(buffers.found), {}, self._annotated(),
            {order.index(name): slots for name, slots in self.tracked.inside.items()},
            {
                order.index(name): Copied(order.index(of), dimensions, slots)
                for name, (of, dimensions, slots) in self.tracked.copies.items()
            },
            {order.index(name): fetched for name, fetched in self.tracked.fetches.items()},
        )  # fmt: skip
        _check_packed(template)
        anchors = anchors_of(template)
        template = replace(template, anchors=anchors)
        return template if location is None else self._located(template, location)

    def _block(self, nest: Nest, buffers: Buffers) -> Block:
        realize, block = nest.realize, nest.realize.block
        variables = tuple(each.var for each in block.iter_vars)
        extents = tuple(int(each.dom.extent) for each in block.iter_vars)
        name = str(block.name_hint)
        regions = [*block.reads, *block.writes]
        if name in self.given:
            work = Work(
                BufferReference(buffers.number(block.writes[0].source), ()),
                tuple(BufferReference(buffers.number(each.source), ()) for each in block.reads),
                Compute(),
            )
            return Block(name, (), (), (), (), work, None, (), self.given[name])
        matched = {
            each.buffer: buffers.region(each.source, variables) for each in block.match_buffers
        }
        if not _is_always(realize):
            raise Unanswered("a block with a predicate")
        if any(int(each.iter_type) not in (SPATIAL, REDUCTION) for each in block.iter_vars):
            raise Unanswered("iterators that neither run in parallel nor reduce")
        return Block(
            name=name,
            extents=extents,
            reduces=tuple(int(each.iter_type) == REDUCTION for each in block.iter_vars),
            axes=tuple(self.tracked.axes.get(name, ())),
            variables=variables,
            work=work_of(block.body, variables, extents, buffers, matched),
            first=None if block.init is None else work_of(block.init, variables, extents, buffers),
            regions=tuple(buffers.region(each, variables) for each in regions),
        )

    def _given(self, nests: Sequence[Nest]) -> dict[str, tuple[Statement, ...]]:
        """The statements of standalone blocks whose loops no decision changes."""
        counts = [1 + (nest.realize.block.init is not None) for nest in nests]
        lowered: list[Statement] = []
        found: dict[str, tuple[Statement, ...]] = {}
        for number, nest in enumerate(nests):
            name = str(nest.realize.block.name_hint)
            path = {loop.loop_var for loop in nest.path}
            others = (n for n in nests if n is not nest)
            alone = not any(loop.loop_var in path for n in others for loop in n.path)
            fixed = not any(
                isinstance(self.tracked.slots[slot], TilePart)
                for loop in nest.path
                for slot in self.tracked.known[loop.loop_var]
            )
            # Postprocessing binds unbound loops to threads.
            bound = self.target.kind == CpuTarget.kind or any(
                loop.thread_binding is not None for loop in nest.path
            )
            told = name in self.tracked.copies or (bound and self._is_affine(nest))
            if not alone or not fixed or told:
                continue
            lowered = lowered or statements_of(self._postprocessed())
            if len(lowered) != sum(counts):
                raise Unanswered("statements that are of no block")
            first = sum(counts[:number])
            found[name] = tuple(lowered[first : first + counts[number]])
        return found

    def _postprocessed(self) -> Any:
        trace = trace_text(self.tracked.schedule.trace)
        return replay(self.tracked.module, self.target, trace).mod

    def _is_affine(self, nest: Nest) -> bool:
        block = nest.realize.block
        variables = [each.var for each in block.iter_vars]
        extents = [int(each.dom.extent) for each in block.iter_vars]
        buffers = Buffers(self.tracked.schedule.mod["main"], (), False)
        if not _is_always(nest.realize):
            return False
        try:
            for each in (*block.reads, *block.writes):
                buffers.region(each, variables)
            work_of(block.body, variables, extents, buffers)
        except Unanswered:
            return False
        return True

    def _annotated(self) -> Annotated | None:
        """The annotations of the root block."""
        sampled = {
            out: choice
            for choice, position in enumerate(self.tracked.sketch.positions)
            for out in self.tracked.sketch.instructions[position][3]
        }
        values: dict[str, Any] = {}
        for kind, inputs, attributes, _ in self.tracked.sketch.instructions:
            if kind == "Annotate" and str(attributes[0]).startswith(_ASKED):
                values[str(attributes[0]).removeprefix(_ASKED)] = inputs[1]
        if "parallel" not in values and "vectorize" not in values:
            return None
        unroll = values.get("unroll_explicit", values.get("unroll_implicit"))
        return Annotated(
            int(values.get("parallel", -1)),
            int(values.get("vectorize", -1)),
            sampled.get(unroll, -1),
        )

    def _located(self, template: Template, location: int) -> Template:
        position = self.tracked.sketch.positions[location]
        block_name = self.tracked.sketch.instructions[position][1][0]
        name = next(
            json.loads(attributes[0]) if attributes[0].startswith('"') else attributes[0]
            for kind, _, attributes, outputs in self.tracked.sketch.instructions
            if kind == "GetSBlock" and outputs == [block_name]
        )
        located = next(i for i, each in enumerate(template.blocks) if each.name == name)
        written = template.blocks[located].work.store.buffer
        consumers = [
            i
            for i, each in enumerate(template.blocks)
            if any(load.buffer == written for load in each.work.loads) and i != located
        ]
        if len(consumers) != 1 or located in template.anchors:
            raise Unanswered("a block with several readers, or inside of another, is moved")
        anchor = None
        choice = self.tracked.sketch.choices[location]
        # If no tile determines the valid locations, TVM may choose another one.
        ruled = isinstance(choice, Location) and bool((choice.tile >= 0).any())
        if ruled and not template.blocks[located].given:
            with contextlib.suppress(Unanswered):  # reported where it is not moved
                anchor = produced(template.blocks, located, consumers[0])
        return replace(template, location=location, located=located, located_anchor=anchor)


def _check_packed(template: Template) -> None:
    """The packing of weights is known if each is read by one block that does not copy it."""
    for number, buffer in enumerate(template.buffers):
        if not buffer.packed:
            continue
        readers = [
            block for block in template.blocks for load in block.work.loads if load.buffer == number
        ]
        copies = (
            len(block.work.loads) == 1
            and block.first is None
            and not template.buffers[block.work.store.buffer].argument
            for block in readers
        )
        if len(readers) > 1 or any(copies):
            raise Unanswered("a weight that several blocks read, or that is copied")


def _is_always(realize: Any) -> bool:
    always = isinstance(realize.predicate, tirx.IntImm) and int(realize.predicate) == 1
    return always and not any(int(each.dom.min) for each in realize.block.iter_vars)
