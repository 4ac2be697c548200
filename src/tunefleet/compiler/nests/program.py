"""A program of a template with its decisions: extents of loops and strides of iterators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tunefleet.compiler.nests.template import (
    Anchor,
    Axis,
    Block,
    BufferReference,
    Fixed,
    Rest,
    Same,
    Template,
    TilePart,
    Unanswered,
    Work,
)
from tunefleet.features.behaviours import Run

#: The stride of an iterator or index per step of each slot.
SlotSteps = dict[int, int]


@dataclass(eq=False, slots=True)
class Around:
    """A loop over fused slots, outermost first, with `extent` iterations of `step` slot steps
    each."""

    slots: tuple[int, ...]
    extent: int
    run: Run = Run.SERIAL
    step: int = 1
    annotated: bool = False
    axis: str = ""

    def is_shared_by(self, scope: str) -> bool:
        """Whether the iterations of this loop, threads of a GPU, share memory of a scope."""
        if scope.startswith("shared"):
            return bool(self.axis) and not self.axis.startswith("blockIdx")
        return bool(self.axis) and scope == "global"


def outside(loops: Sequence[Around], scope: str) -> frozenset[int]:
    """The slots of loops whose iterations have separate memory of a scope."""
    return frozenset(s for loop in loops if not loop.is_shared_by(scope) for s in loop.slots)


@dataclass(slots=True)
class Placed:
    """A store of a block with its surrounding loops."""

    block: int
    work: Work
    path: list[Around]


@dataclass(slots=True)
class TemplateProgram:
    """`values` are the values of each choice (tile parts, a category, a location)."""

    template: Template
    values: Sequence[Sequence[int]]
    paths: list[list[Around]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    _extents: dict[int, int] = field(default_factory=dict)
    _steps: dict[int, list[SlotSteps]] = field(default_factory=dict)
    _reducing: set[int] | None = None
    #: For blocks inside the loops of others: the anchor, and the slots of the shared loops.
    _anchors: dict[int, tuple[Anchor, frozenset[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        template = self.template
        around = {
            number: Around(loop.slots, 0, loop.run, axis=loop.axis)
            for number, loop in enumerate(template.loops)
        }
        self.order = list(range(len(template.blocks)))
        location = self.values[template.location][0] if template.location >= 0 else -1
        if location < -1:
            raise Unanswered("a block is inlined")
        for block, anchor in template.anchors.items():
            other = set(template.paths[anchor.block])
            shared = [around[n] for n in template.paths[block] if n in other]
            self._anchors[block] = anchor, outside(shared, template.buffers[anchor.buffer].scope)
        moved = template.located_anchor
        if location >= 0:
            if moved is None:
                raise Unanswered("a block of which not all is known is moved")
            to = list(template.paths[moved.block][: location + 1])
            if len(to) <= location or self.product(template.loops[to[-1]].slots) == 1:
                raise Unanswered("a location that TVM does not take")
            scope = template.buffers[moved.buffer].scope
            self._anchors[template.located] = moved, outside([around[n] for n in to], scope)
        for loop in around.values():
            loop.extent = self.product(loop.slots)
        self.paths = [[around[number] for number in path] for path in template.paths]
        if location >= 0 and moved is not None:
            located, consumer = template.located, moved.block
            self.paths[located] = self.paths[consumer][: location + 1] + self.paths[located]
            self.order.remove(located)
            self.order.insert(self.order.index(consumer), located)

    def extent(self, slot: int) -> int:
        """The number of steps of a slot."""
        known = self._extents.get(slot)
        if known is None:
            known = self._extents[slot] = self._worked_out(slot)
        return known

    def _worked_out(self, slot: int) -> int:
        match self.template.slots[slot]:
            case TilePart(choice, part):
                return int(self.values[choice][part])
            case Fixed(extent):
                return extent
            case Same(other):
                return self.extent(other)
            case Rest(whole, others):
                rest, left = divmod(self.extent(whole), self.product(others))
                if left:
                    raise Unanswered("a loop is split by what does not divide it")
                return rest
            case Axis(block, dimension, domain):
                return self._region(block, dimension, domain)

    def product(self, slots: Sequence[int]) -> int:
        return math.prod(self.extent(slot) for slot in slots)

    def _region(self, block: int, dimension: int, domain: int) -> int:
        if block not in self._anchors:
            return domain
        anchor, outside = self._anchors[block]
        index = anchor.indices[dimension]
        if index is None:
            return domain
        followed = self.followed(anchor.block, index.terms)
        if self.span(followed) + index.extent - 1 > domain:
            raise Unanswered("loops go beyond what a block inside of them has")
        inside = {slot: step for slot, step in followed.items() if slot not in outside}
        return self.span(inside) + index.extent - 1

    def span(self, steps: SlotSteps) -> int:
        """The number of values between the minimum and the maximum, inclusive."""
        return 1 + sum(abs(step) * (self.extent(slot) - 1) for slot, step in steps.items())

    def steps(self, block: int) -> list[SlotSteps]:
        """The strides of each iterator of a block."""
        if block not in self._steps:
            self._steps[block] = [
                self._iterator(block, d) for d in range(len(self.template.blocks[block].extents))
            ]
        return self._steps[block]

    def followed(self, block: int, terms: Sequence[tuple[int, int]]) -> SlotSteps:
        """The strides of a weighted sum of a block's iterators."""
        found: SlotSteps = {}
        steps = self.steps(block)
        for dimension, coefficient in terms:
            for slot, step in steps[dimension].items():
                found[slot] = found.get(slot, 0) + coefficient * step
        return found

    def flat(self, block: int, reference: BufferReference, shape: Sequence[int]) -> SlotSteps:
        """The memory strides of a buffer element for a shape."""
        if reference.flat is not None:
            return self.followed(block, reference.flat.terms)
        found: SlotSteps = {}
        scale = 1
        for index, extent in zip(reversed(reference.indices), reversed(shape), strict=True):
            for slot, step in self.followed(block, index.terms).items():
                found[slot] = found.get(slot, 0) + scale * step
            scale *= extent
        return found

    def _iterator(self, block: int, dimension: int) -> SlotSteps:
        found: SlotSteps = {}
        copied = self.template.copies.get(block)
        if copied is not None:
            theirs = self._whole(copied.block, copied.dimensions[dimension])
            for slot, step in theirs.items():
                self._expand(copied.slots.get(slot, slot), step, found)
            return found
        found = self._whole(block, dimension)
        inside = self.template.inside.get(block)
        return found if inside is None else self._outside(found, inside)

    def _whole(self, block: int, dimension: int) -> SlotSteps:
        found: SlotSteps = {}
        if block in self._anchors:
            anchor, outside = self._anchors[block]
            index = anchor.indices[dimension]
            if index is not None:
                followed = self.followed(anchor.block, index.terms)
                found = {slot: step for slot, step in followed.items() if slot in outside}
        self._expand(self.template.blocks[block].axes[dimension], 1, found)
        return found

    def _outside(self, steps: SlotSteps, inside: frozenset[int]) -> SlotSteps:
        """The strides of an iterator in units of a tensor instruction."""
        at_once = self.span({slot: step for slot, step in steps.items() if slot in inside})
        outside = {slot: step for slot, step in steps.items() if slot not in inside}
        if any(step % at_once for step in outside.values()):
            raise Unanswered("a tensor instruction does not divide a loop")
        return {slot: step // at_once for slot, step in outside.items()}

    def _expand(self, slot: int, step: int, into: SlotSteps) -> None:
        inner = self.template.splits.get(slot)
        if inner is None:
            into[slot] = into.get(slot, 0) + step
            return
        for each in reversed(inner):
            self._expand(each, step, into)
            step *= self.extent(each)

    def is_spatial(self, loop: Around) -> bool:
        """Whether no block reduces along a loop."""
        if self._reducing is None:
            self._reducing = {
                slot
                for number, block in enumerate(self.template.blocks)
                for dimension, reduces in enumerate(block.reduces)
                if reduces
                for slot in self.steps(number)[dimension]
            }
        return self._reducing.isdisjoint(loop.slots)

    def block(self, number: int) -> Block:
        return self.template.blocks[number]
