"""Computes the statements of a program with known loops, equal to those that `code/loop_nests.py`
extracts from its lowered form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tunefleet.compiler.code.loop_nests import LOOKED_AT
from tunefleet.compiler.nests.conditions import left_of
from tunefleet.compiler.nests.postprocessing import placed, postprocessed
from tunefleet.compiler.nests.program import Around, Placed, SlotSteps, TemplateProgram, outside
from tunefleet.compiler.nests.template import BufferReference, Index, Unanswered
from tunefleet.features.behaviours import Access, Compute, Loop, Move, Run, Statement

#: The number of steps and the stride of each slot of a loop, outermost first.
Digits = tuple[tuple[int, int], ...]


def statements(program: TemplateProgram) -> list[Statement]:
    """The statements in order. Raises Unanswered if they cannot be derived."""
    postprocessed(program)
    stores = placed(program)
    allocated = {
        number: _allocated(program, number, stores)
        for number, buffer in enumerate(program.template.buffers)
        if not buffer.argument
    }
    found: list[Statement] = []
    for store in stores:
        given = program.block(store.block).given
        found += given or [_statement(program, store, allocated)]
    return found


def _statement(
    program: TemplateProgram, store: Placed, allocated: dict[int, tuple[int, tuple[int, ...]]]
) -> Statement:
    # Includes bound loops of extent one.
    loops = [loop for loop in store.path if loop.extent > 1 or loop.run == Run.BOUND]

    def access(reference: BufferReference) -> Access:
        buffer = program.template.buffers[reference.buffer]
        shape = buffer.shape
        standing: frozenset[int] = frozenset()
        if buffer.argument:
            steps = program.flat(store.block, reference, shape)
            if buffer.packed:
                steps = _packed(program, store, reference, steps)
        else:
            depth, shape = allocated[reference.buffer]
            standing = outside(store.path[:depth], buffer.scope)
            steps = program.flat(store.block, reference, shape)
        return Access(
            moves=tuple(_move(program, loop, steps, standing) for loop in loops),
            element_bytes=buffer.element_bytes,
            buffer_elements=math.prod(shape),
            lanes=reference.lanes,
            argument=buffer.argument,
            on_chip=buffer.on_chip,
        )

    work = store.work
    return Statement(
        tuple(Loop(loop.extent, loop.run) for loop in loops),
        tuple(access(load) for load in work.loads),
        _compute(program, store),
        access(work.store),
    )


def _compute(program: TemplateProgram, store: Placed) -> Compute:
    compute = store.work.compute
    for condition in store.work.conditions:
        for name, count in left_of(condition, program, store).items():
            compute = replace(compute, **{name: getattr(compute, name) + count})
    return compute


def _packed(
    program: TemplateProgram, store: Placed, reference: BufferReference, flat: SlotSteps
) -> SlotSteps:
    """Strides of packed weights, which are in the order of their reading loops; `flat` are the
    strides without packing."""
    if any(sum(map(abs, (n for _, n in i.terms))) > 1 or i.constant for i in reference.indices):
        raise Unanswered("a packed weight is not read by its axes")
    split = any(loop.step > 1 for loop in store.path)
    # A fused and split loop occurs twice, with the same slots.
    loops = [loop for loop in store.path if loop.step > 1] if split else store.path
    found: SlotSteps = {}
    scale = 1
    for loop in reversed(loops):
        for slot in reversed(loop.slots):
            if flat.get(slot):
                found[slot] = scale
                scale *= program.extent(slot)
    if scale != math.prod(program.template.buffers[reference.buffer].shape):
        raise Unanswered("a packed weight is not read as a whole")
    if split and any(flat[s] != step for s, step in found.items() if program.extent(s) > 1):
        raise Unanswered("a weight is packed for a loop that was fused and split")
    return found


def _allocated(
    program: TemplateProgram, buffer: int, stores: Sequence[Placed]
) -> tuple[int, tuple[int, ...]]:
    """The number of loops around a buffer, and its shape: the region used inside them."""
    uses = [
        (store, reference)
        for store in stores
        for reference in (store.work.store, *store.work.loads)
        if reference.buffer == buffer
    ]
    if any(program.block(store.block).given for store, _ in uses):
        # Such a standalone block writes, or is given, the whole buffer.
        return 0, program.template.buffers[buffer].shape
    paths = [store.path for store, _ in uses]
    depth = 0
    for loops in zip(*paths, strict=False):
        if any(loop is not loops[0] for loop in loops):
            break
        depth += 1
    shape = list(program.template.buffers[buffer].shape)
    scope = program.template.buffers[buffer].scope
    spans = [
        [_span(program, store, index, outside(store.path[:depth], scope)) for index in ref.indices]
        for store, ref in uses
    ]
    return depth, tuple(
        min(extent, max(each[d] for each in spans)) for d, extent in enumerate(shape)
    )


def _span(program: TemplateProgram, store: Placed, index: Index, standing: frozenset[int]) -> int:
    if index.constant:
        raise Unanswered("a buffer of its own is read beside where it is written")
    steps = program.followed(store.block, index.terms)
    inside = {s: step for s, step in steps.items() if s not in standing}
    return program.span(inside) + index.extent - 1


def _move(
    program: TemplateProgram, loop: Around, steps: SlotSteps, standing: frozenset[int]
) -> Move:
    digits = tuple(
        (program.extent(slot), 0 if slot in standing else steps.get(slot, 0))
        for slot in loop.slots
        if program.extent(slot) > 1
    )
    return _moved(digits, loop.extent, loop.step)


@lru_cache(maxsize=1 << 16)
def _moved(digits: Digits, extent: int, step: int) -> Move:
    if extent == 1:
        return Move(0, 1)
    looked_at = min(extent, LOOKED_AT)
    if len(digits) == 1 and step == 1:
        ((_, stride),) = digits
        return Move(stride, (looked_at if stride else 1) * extent // looked_at)
    left = np.arange(looked_at) * step
    values = np.zeros(looked_at, np.int64)
    for number, (steps, stride) in reversed(list(enumerate(digits))):
        left, digit = np.divmod(left, steps) if number else (left, left)
        values += stride * digit
    return Move(int(values[1] - values[0]), len(np.unique(values)) * extent // looked_at)
