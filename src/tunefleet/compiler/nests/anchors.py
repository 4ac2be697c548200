"""Finds the blocks inside the loops of others, and the iterators that they follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunefleet.compiler.nests.template import (
    Anchor,
    Block,
    BufferReference,
    Index,
    Template,
    Unanswered,
)


def anchors_of(template: Template) -> dict[int, Anchor]:
    """The anchors of blocks that instructions of the sketch moved into the loops of others."""
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
    """The final slots of a split slot, outermost first."""
    inner = splits.get(slot)
    return [slot] if inner is None else [leaf for s in inner for leaf in leaves_of(splits, s)]


def _anchor(blocks: Sequence[Block], block: int, other: int) -> Anchor:
    """The anchor of a block on another: through what either reads of the other."""
    if any(load.buffer == blocks[other].work.store.buffer for load in blocks[block].work.loads):
        return _consumed(blocks, block, other)
    return produced(blocks, block, other)


def produced(blocks: Sequence[Block], block: int, reader: int) -> Anchor:
    """The anchor of a block that is computed at its reader. Raises Unanswered."""
    store = blocks[block].work.store
    return _following(blocks[block], reader, store, _read(blocks[reader], store.buffer))


def _consumed(blocks: Sequence[Block], block: int, writer: int) -> Anchor:
    store = blocks[writer].work.store
    return _following(blocks[block], writer, _read(blocks[block], store.buffer), store)


def _read(block: Block, buffer: int) -> BufferReference:
    reads = {load for load in block.work.loads if load.buffer == buffer}
    if len(reads) != 1:
        raise Unanswered("a block is read in several ways, or not at all")
    (read,) = reads
    return read


def _following(block: Block, other: int, own: BufferReference, theirs: BufferReference) -> Anchor:
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
    return Anchor(other, tuple(indices), own.buffer)
