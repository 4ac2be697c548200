"""Tracks the slots of a sketch's loops while one of its programs is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tunefleet.compiler.nests.anchors import leaves_of
from tunefleet.compiler.nests.template import (
    Axis,
    Fetched,
    Fixed,
    Rest,
    Same,
    Slot,
    TilePart,
    Unanswered,
)
from tunefleet.compiler.space.intrinsics import make_all_known
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import FETCHED
from tunefleet.errors import raise_mistake
from tunefleet.search.choices import Location
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
tirx = tvm.tirx

SPATIAL, REDUCTION = 0, 2  # of tirx.IterVar


@dataclass
class Nest:
    """A block with its position."""

    realize: Any
    path: list[Any]


@dataclass
class Tracked:
    """Tracks the loops of a sketch of `module` through its splits."""

    module: Any
    sketch: Sketch
    #: The position of a block with a compute location.
    place: int
    slots: list[Slot] = field(default_factory=list)
    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    #: The slots of a loop, by its variable, and by its name in the sketch.
    known: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    of_loop: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    #: By block name: the slot of each iterator.
    axes: dict[str, list[int]] = field(default_factory=dict)
    factors: dict[Any, TilePart] = field(default_factory=dict)
    #: The blocks with known axes, in order of discovery.
    names: list[str] = field(default_factory=list)
    #: By name of an initialisation: its reduction, its iterators, its slots in place of theirs.
    copies: dict[str, tuple[str, tuple[int, ...], dict[int, int]]] = field(default_factory=dict)
    #: By block name: the slots covered by its tensor instruction.
    inside: dict[str, frozenset[int]] = field(default_factory=dict)
    #: The slots of the loop last bound to threads, and the fetches by block.
    threads: tuple[int, ...] = ()
    fetches: dict[str, Fetched] = field(default_factory=dict)
    #: The error that ended a replay, which TVM wraps in its own.
    refused: Unanswered | None = None

    def replay(self) -> None:
        """Replays a program. Raises Unanswered if an effect on loops is unknown."""
        try:
            self._replay()
        except Exception as error:
            if self.refused is not None:
                raise self.refused from None
            raise_mistake(error)
            raise Unanswered("a program that TVM rejects") from error

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
            try:
                for position in range(seen, len(done)):
                    self._follow(position, done[position])
            except Unanswered as reason:
                self.refused = reason
                raise
            seen = len(done)
            return decision

        first.trace.apply_to_schedule(self.schedule, True, look)
        look(None, None, None, None)

    def _follow(self, position: int, instruction: Any) -> None:
        kind = str(instruction.kind.name)
        if kind == "SamplePerfectTile":
            choice = self.sketch.positions.index(position)
            self.factors.update(
                (out, TilePart(choice, part)) for part, out in enumerate(instruction.outputs)
            )
        elif kind == "SampleCategorical":
            choice = self.sketch.positions.index(position)
            self.factors[instruction.outputs[0]] = TilePart(choice, 0)
        elif kind == "Bind" and instruction.attrs[0] == "threadIdx.x":
            self.threads = self.of_loop[instruction.inputs[0]]
        elif kind == "Bind" and instruction.attrs[0] == "threadIdx.y":
            raise Unanswered("threads in two dimensions")
        elif kind == "Annotate" and instruction.attrs[0] == FETCHED:
            name = str(self.schedule.get(instruction.inputs[0]).name_hint)
            self.fetches[name] = Fetched(self.factors[instruction.inputs[1]].choice, self.threads)
        elif kind == "GetLoops":
            path = [self.schedule.get(loop) for loop in instruction.outputs]
            self.axes_of(_realize(path, self.schedule.get(instruction.inputs[0])), path)
            for loop, node in zip(instruction.outputs, path, strict=True):
                self.of_loop[loop] = self.known[node.loop_var]
        elif kind == "Split":
            self._split(instruction)
        elif kind == "Fuse":
            slots = tuple(s for loop in instruction.inputs for s in self.of_loop[loop])
            self.of_loop[instruction.outputs[0]] = slots
            self.known[self.schedule.get(instruction.outputs[0]).loop_var] = slots
        elif kind == "DecomposeReduction":
            self._decomposed(
                *(self.schedule.get(b) for b in (*instruction.outputs, instruction.inputs[0]))
            )
        elif kind == "Tensorize":
            self._tensorised()

    def axes_of(self, realize: Any, path: Sequence[Any]) -> None:
        """Register unseen loops as the axes of a block."""
        new = [loop for loop in path if loop.loop_var not in self.known]
        if not new:
            return
        block = realize.block
        name = str(block.name_hint)
        if name in self.axes or len(new) != len(block.iter_vars) or new != list(path)[-len(new) :]:
            raise Unanswered(f"loops of {name} that are not its axes")
        self.axes[name] = []
        self.names.append(name)
        for dimension, (loop, iterator) in enumerate(zip(new, block.iter_vars, strict=True)):
            self.axes[name].append(len(self.slots))
            self.known[loop.loop_var] = (len(self.slots),)
            self.slots.append(Axis(len(self.names) - 1, dimension, int(iterator.dom.extent)))

    def _decomposed(self, first: Any, update: Any) -> None:
        """The loops of a reduction's initialisation are copies of the loops that it needs."""
        nests = {str(nest.realize.block.name_hint): nest for nest in self.nests()}
        one, other = nests[str(first.name_hint)], nests[str(update.name_hint)]
        self._renamed(str(update.name_hint))
        shared = len([loop for loop in one.path if loop.loop_var in self.known])
        realize = other.realize
        kinds = [int(each.iter_type) != REDUCTION for each in update.iter_vars]
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
        """Record tensorised loops, which are no longer around the block."""
        nests = {str(nest.realize.block.name_hint): nest for nest in self.nests()}
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
        nests = {str(nest.realize.block.name_hint) for nest in self.nests()}
        (old,) = (each for each in self.axes if each not in nests)
        self.axes[name] = self.axes.pop(old)
        self.names[self.names.index(old)] = name

    def nests(self) -> list[Nest]:
        nests: list[Nest] = []
        _walk(self.schedule.mod["main"].body.block.body, [], nests)
        return nests

    def _split(self, instruction: Any) -> None:
        whole, *more = self.of_loop[instruction.inputs[0]]
        if more:
            raise Unanswered("a loop that was fused is split")
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


def _walk(node: Any, path: list[Any], into: list[Nest]) -> None:
    if isinstance(node, tirx.For):
        _walk(node.body, [*path, node], into)
    elif isinstance(node, tirx.SeqStmt):
        for each in node.seq:
            _walk(each, path, into)
    elif isinstance(node, tvm.s_tir.SBlockRealize):
        into.append(Nest(node, path))
    else:
        raise Unanswered(f"a {type(node).__name__}")


def _realize(path: Sequence[Any], block: Any) -> Any:
    """The block's realize statement in the innermost of its loops."""
    waiting = [path[-1].body] if path else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, tvm.s_tir.SBlockRealize) and node.block.same_as(block):
            return node
        waiting += list(node.seq) if isinstance(node, tirx.SeqStmt) else []
    raise Unanswered("a block that is not in the innermost of its loops")
