"""Reads the template of a sketch off one of its programs, as it stands before postprocessing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tunefleet.compiler.code.loop_nests import statements_of
from tunefleet.compiler.code.replay import replay
from tunefleet.compiler.nests.bodies import Buffers, affine, work_of
from tunefleet.compiler.nests.template import (
    Anchor,
    Annotated,
    Axis,
    Block,
    Copied,
    Fixed,
    Index,
    Nested,
    Part,
    Reference,
    Rest,
    Same,
    Slot,
    Template,
    Unanswered,
    Work,
)
from tunefleet.compiler.space.intrinsics import make_all_known
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import trace_text
from tunefleet.core.target import Target
from tunefleet.features.behaviours import Compute, Run, Statement
from tunefleet.search.choices import Location
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
tirx = tvm.tirx

#: Instructions whose effect is in the program that is read, or is followed here.
_KNOWN = {
    "GetSBlock", "GetLoops", "GetProducers", "GetConsumers", "GetChildBlocks", "GetOutputBlocks",
    "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "ComputeAt", "Split",
    "ReverseComputeAt", "Reorder", "Fuse", "Annotate", "Unannotate", "ComputeInline",
    "ReverseComputeInline", "CacheWrite", "CacheRead", "EnterPostproc", "TransformLayout",
    "Vectorize", "Unroll", "Parallel", "DecomposeReduction", "Tensorize",
}  # fmt: skip
#: Of a block that packs weights: that is done when a network is compiled.
_PACKS = "meta_schedule.layout_rewrite_preproc"
_REDUCTION = 2  # of tirx.IterVar
_ASKED = "meta_schedule."
_RUNS = {0: Run.SERIAL, 1: Run.PARALLEL, 2: Run.VECTORIZED, 3: Run.UNROLLED}


def template_of(module: Any, target: Target, sketch: Sketch, inlined: bool) -> Template:
    """Of a form of a task; `inlined`: of the programs in which the block that has a compute location
    is inlined. Raises Unanswered for a sketch of a kind that is not known here."""
    kinds = {instruction[0] for instruction in sketch.instructions}
    if kinds - _KNOWN:
        raise Unanswered(f"instructions {sorted(kinds - _KNOWN)}")
    if sum(instruction[0] == "Tensorize" for instruction in sketch.instructions) > 1:
        raise Unanswered("tensor instructions whose sums have no address")
    located = [i for i, c in enumerate(sketch.choices) if isinstance(c, Location)]
    if len(located) > 1:
        raise Unanswered("several compute locations")
    reader = _Reader(module, target, sketch, -2 if inlined else -1)
    return reader.read(located[0] if located and not inlined else None)


@dataclass
class _Nest:
    """A block where it stands."""

    realize: Any
    path: list[Any]


@dataclass
class _Reader:
    module: Any
    target: Target
    sketch: Sketch
    #: Where a block with a compute location is.
    place: int
    slots: list[Slot] = field(default_factory=list)
    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    #: By loop variable.
    known: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    #: By name of a block: the slot of each iterator.
    axes: dict[str, list[int]] = field(default_factory=dict)
    factors: dict[Any, Part] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    of_loop: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    #: By name of a first step: what it is of, which of its iterators, its slots in place of theirs.
    copies: dict[str, tuple[str, tuple[int, ...], dict[int, int]]] = field(default_factory=dict)
    #: By name of a block: the slots that its tensor instruction goes through.
    inside: dict[str, frozenset[int]] = field(default_factory=dict)

    def read(self, location: int | None) -> Template:
        self._replay()
        nests = [n for n in self._nests() if _PACKS not in n.realize.block.annotations]
        packing = [n.realize.block for n in self._nests() if _PACKS in n.realize.block.annotations]
        for nest in nests:
            self._axes_of(nest.realize, nest.path)
        tensor = any(kind == "Tensorize" for kind, *_ in self.sketch.instructions)
        buffers = Buffers(self.schedule.mod["main"], packing, not tensor)
        order = [str(nest.realize.block.name_hint) for nest in nests]
        self.given = self._given(nests)
        blocks = [self._block(nest, buffers) for nest in nests]
        slots = [
            replace(s, block=order.index(self.names[s.block])) if isinstance(s, Axis) else s
            for s in self.slots
        ]
        loops, numbers = [], {}
        for nest in nests:
            for loop in nest.path:
                if loop.loop_var not in numbers:
                    numbers[loop.loop_var] = len(loops)
                    loops.append(Nested(self.known[loop.loop_var], _RUNS[int(loop.kind)]))
        paths = tuple(tuple(numbers[loop.loop_var] for loop in nest.path) for nest in nests)
        template = Template(
            tuple(slots), self.splits, tuple(loops), paths, tuple(blocks),
            tuple(buffers.found), {}, self._annotated(),
            {order.index(name): slots for name, slots in self.inside.items()},
            {
                order.index(name): Copied(order.index(of), dimensions, slots)
                for name, (of, dimensions, slots) in self.copies.items()
            },
        )  # fmt: skip
        anchors = _anchors(template)
        template = replace(template, anchors=anchors)
        return template if location is None else self._located(template, location)

    def _replay(self) -> None:
        instructions = [list(i) for i in self.sketch.instructions]
        decisions = [
            [position, self.place if isinstance(choice, Location) else choice.decision(0)]
            for choice, position in zip(self.sketch.choices, self.sketch.positions, strict=True)
        ]
        make_all_known(instructions)
        first = tvm.s_tir.Schedule(self.module, error_render_level="none")
        tvm.s_tir.schedule.Trace.apply_json_to_schedule([instructions, decisions], first)
        self.schedule = tvm.s_tir.Schedule(self.module, error_render_level="none")
        seen = 0

        def look(_: Any, __: Any, ___: Any, decision: Any) -> Any:
            nonlocal seen
            done = self.schedule.trace.insts
            for position in range(seen, len(done)):
                self._follow(position, done[position])
            seen = len(done)
            return decision

        first.trace.apply_to_schedule(self.schedule, True, look)
        look(None, None, None, None)

    def _follow(self, position: int, instruction: Any) -> None:
        kind = str(instruction.kind.name)
        if kind == "SamplePerfectTile":
            choice = self.sketch.positions.index(position)
            self.factors.update(
                (out, Part(choice, part)) for part, out in enumerate(instruction.outputs)
            )
        elif kind == "GetLoops":
            path = [self.schedule.get(loop) for loop in instruction.outputs]
            self._axes_of(_realize(path, self.schedule.get(instruction.inputs[0])), path)
            for loop, node in zip(instruction.outputs, path, strict=True):
                self.of_loop[loop] = self.known[node.loop_var]
        elif kind == "Split":
            self._split(instruction)
        elif kind == "Fuse":
            slots = tuple(s for loop in instruction.inputs for s in self.of_loop[loop])
            self.of_loop[instruction.outputs[0]] = slots
            self.known[self.schedule.get(instruction.outputs[0]).loop_var] = slots
        elif kind == "DecomposeReduction":
            self._decomposed(*(self.schedule.get(b) for b in (*instruction.outputs, instruction.inputs[0])))
        elif kind == "Tensorize":
            self._tensorised()

    def _axes_of(self, realize: Any, path: Sequence[Any]) -> None:
        """Loops that were not seen before are the axes of a block."""
        new = [loop for loop in path if loop.loop_var not in self.known]
        if not new:
            return
        block = realize.block
        name = str(block.name_hint)
        if name in self.axes or len(new) != len(block.iter_vars) or new != list(path)[-len(new) :]:
            raise Unanswered(f"loops of {name} that are not its axes")
        self.axes[name] = []
        self.names.append(name)
        for dimension, loop in enumerate(new):
            self.axes[name].append(len(self.slots))
            self.known[loop.loop_var] = (len(self.slots),)
            self.slots.append(Axis(len(self.names) - 1, dimension, int(loop.extent)))

    def _decomposed(self, first: Any, update: Any) -> None:
        """The loops of a reduction's first step are copies of those that it needs."""
        nests = {str(nest.realize.block.name_hint): nest for nest in self._nests()}
        one, other = nests[str(first.name_hint)], nests[str(update.name_hint)]
        self._renamed(str(update.name_hint))
        shared = len([loop for loop in one.path if loop.loop_var in self.known])
        realize = other.realize
        kinds = [int(each.iter_type) != _REDUCTION for each in update.iter_vars]
        used = {
            variable
            for value, spatial in zip(realize.iter_values, kinds, strict=True)
            if spatial
            for variable in tirx.analysis.undefined_vars(value)
        }
        needed = [loop for loop in other.path[shared:] if loop.loop_var in used]
        copies = one.path[shared:]
        if [int(loop.extent) for loop in needed] != [int(loop.extent) for loop in copies]:
            raise Unanswered("a first step with loops of its own")
        slots: dict[int, int] = {}
        for loop, copy in zip(needed, copies, strict=True):
            made = []
            for slot in self.known[loop.loop_var]:
                slots[slot] = len(self.slots)
                made.append(len(self.slots))
                self.slots.append(Same(slot))
            self.known[copy.loop_var] = tuple(made)
        dimensions = tuple(d for d, spatial in enumerate(kinds) if spatial)
        self.copies[str(first.name_hint)] = str(update.name_hint), dimensions, slots

    def _tensorised(self) -> None:
        """Its loops are gone from around the block."""
        nests = {str(nest.realize.block.name_hint): nest for nest in self._nests()}
        (gone,) = (name for name in self.axes if name not in nests)
        self._renamed(f"{gone}_o")
        for copy, (of, dimensions, slots) in list(self.copies.items()):
            self.copies[copy] = f"{gone}_o" if of == gone else of, dimensions, slots
        path = nests[f"{gone}_o"].path
        left = {slot for loop in path for slot in self.known[loop.loop_var]}
        axes = self.axes[f"{gone}_o"]
        leaves = {leaf for axis in axes for leaf in leaves_of(self.splits, axis)}
        self.inside[f"{gone}_o"] = frozenset(leaves - left)

    def _renamed(self, name: str) -> None:
        nests = {str(nest.realize.block.name_hint) for nest in self._nests()}
        (old,) = (each for each in self.axes if each not in nests)
        self.axes[name] = self.axes.pop(old)
        self.names[self.names.index(old)] = name

    def _nests(self) -> list[_Nest]:
        nests: list[_Nest] = []
        _walk(self.schedule.mod["main"].body.block.body, [], nests)
        return nests

    def _split(self, instruction: Any) -> None:
        (whole,) = self.of_loop[instruction.inputs[0]]
        first = len(self.slots)
        made = range(first, first + len(instruction.outputs))
        for number, factor in zip(made, instruction.inputs[1:], strict=True):
            if factor is None:
                self.slots.append(Rest(whole, tuple(n for n in made if n != number)))
            elif factor in self.factors:
                self.slots.append(self.factors[factor])
            else:
                self.slots.append(Fixed(int(factor)))
        self.splits[whole] = tuple(made)
        for number, loop in zip(made, instruction.outputs, strict=True):
            self.of_loop[loop] = (number,)
            self.known[self.schedule.get(loop).loop_var] = (number,)

    def _block(self, nest: _Nest, buffers: Buffers) -> Block:
        realize, block = nest.realize, nest.realize.block
        variables = tuple(each.var for each in block.iter_vars)
        extents = tuple(int(each.dom.extent) for each in block.iter_vars)
        name = str(block.name_hint)
        regions = [*block.reads, *block.writes]
        if name in self.given:
            work = Work(
                Reference(buffers.number(block.writes[0].source), ()),
                tuple(Reference(buffers.number(each.source), ()) for each in block.reads),
                Compute(),
            )
            return Block(name, (), (), (), (), work, None, (), self.given[name])
        matched = {
            each.buffer: buffers.region(each.source, variables) for each in block.match_buffers
        }
        if not _is_always(realize):
            raise Unanswered("a block with a predicate")
        return Block(
            name=name,
            extents=extents,
            reduces=tuple(int(each.iter_type) == _REDUCTION for each in block.iter_vars),
            axes=tuple(self.axes.get(name, ())),
            variables=variables,
            work=work_of(block.body, variables, extents, buffers, matched),
            first=None if block.init is None else work_of(block.init, variables, extents, buffers),
            regions=tuple(buffers.region(each, variables) for each in regions),
        )

    def _given(self, nests: Sequence[_Nest]) -> dict[str, tuple[Statement, ...]]:
        """What blocks that stand for themselves, with loops that no decision changes, do."""
        counts = [1 + (nest.realize.block.init is not None) for nest in nests]
        lowered: list[Statement] = []
        found: dict[str, tuple[Statement, ...]] = {}
        for number, nest in enumerate(nests):
            name = str(nest.realize.block.name_hint)
            path = {loop.loop_var for loop in nest.path}
            others = (n for n in nests if n is not nest)
            alone = not any(loop.loop_var in path for n in others for loop in n.path)
            fixed = not any(
                isinstance(self.slots[slot], Part)
                for loop in nest.path
                for slot in self.known[loop.loop_var]
            )
            if not alone or not fixed or name in self.copies or self._is_affine(nest):
                continue
            lowered = lowered or statements_of(self._postprocessed())
            if len(lowered) != sum(counts):
                raise Unanswered("statements that are of no block")
            first = sum(counts[:number])
            found[name] = tuple(lowered[first : first + counts[number]])
        return found

    def _postprocessed(self) -> Any:
        trace = trace_text(self.schedule.trace)
        return replay(self.module, self.target, trace).mod

    def _is_affine(self, nest: _Nest) -> bool:
        block = nest.realize.block
        variables = [each.var for each in block.iter_vars]
        extents = [int(each.dom.extent) for each in block.iter_vars]
        buffers = Buffers(self.schedule.mod["main"], (), False)
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
        """What the root block is annotated with."""
        sampled = {
            out: choice
            for choice, position in enumerate(self.sketch.positions)
            for out in self.sketch.instructions[position][3]
        }
        values: dict[str, Any] = {}
        for kind, inputs, attributes, _ in self.sketch.instructions:
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
        position = self.sketch.positions[location]
        block_name = self.sketch.instructions[position][1][0]
        name = next(
            json.loads(attributes[0]) if attributes[0].startswith('"') else attributes[0]
            for kind, _, attributes, outputs in self.sketch.instructions
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
        if not template.blocks[located].given:
            anchor = _produced(template.blocks, located, consumers[0])
        return replace(template, location=location, located=located, located_anchor=anchor)


def _walk(node: Any, path: list[Any], into: list[_Nest]) -> None:
    if isinstance(node, tirx.For):
        _walk(node.body, [*path, node], into)
    elif isinstance(node, tirx.SeqStmt):
        for each in node.seq:
            _walk(each, path, into)
    elif isinstance(node, tvm.s_tir.SBlockRealize):
        into.append(_Nest(node, path))
    else:
        raise Unanswered(f"a {type(node).__name__}")


def _is_always(realize: Any) -> bool:
    always = isinstance(realize.predicate, tirx.IntImm) and int(realize.predicate) == 1
    return always and not any(int(each.dom.min) for each in realize.block.iter_vars)


def _anchors(template: Template) -> dict[int, Anchor]:
    """Of blocks that instructions of the sketch brought into the loops of others."""
    own = [
        {leaf for axis in block.axes for leaf in leaves_of(template.splits, axis)}
        for block in template.blocks
    ]
    found = {}
    for number, path in enumerate(template.paths):
        foreign = {
            slot for loop in path for slot in template.loops[loop].slots if slot not in own[number]
        }
        if not foreign or number in template.copies or template.blocks[number].given:
            continue
        others = [i for i, slots in enumerate(own) if foreign <= slots]
        if len(others) != 1:
            raise Unanswered("a block in the loops of several others")
        found[number] = _anchor(template.blocks, number, others[0])
    return found


def leaves_of(splits: Mapping[int, tuple[int, ...]], slot: int) -> list[int]:
    """The slots that a slot was split into in the end, outermost first."""
    inner = splits.get(slot)
    return [slot] if inner is None else [leaf for s in inner for leaf in leaves_of(splits, s)]


def _anchor(blocks: Sequence[Block], block: int, other: int) -> Anchor:
    """What a block follows of another: what that one reads of it, or what it reads of that one."""
    if any(load.buffer == blocks[other].work.store.buffer for load in blocks[block].work.loads):
        return _consumed(blocks, block, other)
    return _produced(blocks, block, other)


def _produced(blocks: Sequence[Block], block: int, reader: int) -> Anchor:
    store = blocks[block].work.store
    reads = {load for load in blocks[reader].work.loads if load.buffer == store.buffer}
    if len(reads) != 1:
        raise Unanswered("a block is read in several ways, or not at all")
    (read,) = reads
    return _following(blocks[block], reader, store, read)


def _consumed(blocks: Sequence[Block], block: int, writer: int) -> Anchor:
    store = blocks[writer].work.store
    reads = {load for load in blocks[block].work.loads if load.buffer == store.buffer}
    if len(reads) != 1:
        raise Unanswered("a block reads another in several ways")
    (read,) = reads
    return _following(blocks[block], writer, read, store)


def _following(block: Block, other: int, own: Reference, theirs: Reference) -> Anchor:
    indices: list[Index | None] = [None] * len(block.axes)
    for mine, their in zip(own.indices, theirs.indices, strict=True):
        if not mine.terms and not mine.constant:
            continue
        if mine.constant or len(mine.terms) != 1 or mine.terms[0][1] != 1:
            raise Unanswered("what a block follows of another is no iterator of its own")
        ((dimension, _),) = mine.terms
        if indices[dimension] is not None:
            raise Unanswered("an iterator follows several indices")
        indices[dimension] = their
    return Anchor(other, tuple(indices))


def _realize(path: Sequence[Any], block: Any) -> Any:
    """The statement that puts a block into the innermost of its loops."""
    waiting = [path[-1].body] if path else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, tvm.s_tir.SBlockRealize) and node.block.same_as(block):
            return node
        waiting += list(node.seq) if isinstance(node, tirx.SeqStmt) else []
    raise Unanswered("a block that is not in the innermost of its loops")
