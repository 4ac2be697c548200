"""A sketch's programs before their decisions: their blocks and the loops around these.

A slot is a loop before it is fused with others. A block's axis starts as one slot; splits make it a
sequence of slots inside each other. So where an iterator stands is a sum over the slots that its
axis was split into, each times the extents of those after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunefleet.features.behaviours import Compute, Run, Statement


class Unanswered(Exception):
    """What a program's loops do cannot be told from its decisions; the text says why."""


@dataclass(frozen=True, slots=True)
class TilePart:
    """As many steps as part `part` of the tile that is choice `choice`."""

    choice: int
    part: int


@dataclass(frozen=True, slots=True)
class Fixed:
    extent: int


@dataclass(frozen=True, slots=True)
class Axis:
    """All that iterator `dimension` of a block runs over: its `domain` or, of a block that was
    brought into another's loops, what those need."""

    block: int
    dimension: int
    domain: int


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a slot that is split by others."""

    slot: int
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Same:
    """As long as another slot."""

    slot: int


Slot = TilePart | Fixed | Axis | Rest | Same


@dataclass(frozen=True, slots=True)
class Index:
    """`extent` elements from `constant + sum(coefficient * iterator)` on; `terms` are (dimension of
    the block, coefficient). `divisor`: of that sum the quotient or, `remains`, the remainder."""

    constant: int
    terms: tuple[tuple[int, int], ...]
    extent: int = 1
    divisor: int = 1
    remains: bool = False


@dataclass(frozen=True, slots=True)
class BufferReference:
    """An element of a buffer, or where a region of it begins. `flat` is where that is in memory, of
    an argument whose indices are no sums themselves."""

    buffer: int
    indices: tuple[Index, ...]
    lanes: int = 1
    flat: Index | None = None

    def first(self, shape: Sequence[int]) -> int:
        """Which element of a buffer of a shape it is where all iterators are 0."""
        if self.flat is not None:
            return self.flat.constant
        found = 0
        for index, extent in zip(self.indices, shape, strict=True):
            found = found * extent + index.constant
        return found


@dataclass(frozen=True, slots=True)
class Buffer:
    """`packed`: a weight that lies in the order in which it is read. `scope` is where it is, in
    TVM's words."""

    shape: tuple[int, ...]
    element_bytes: float
    argument: bool
    on_chip: bool
    packed: bool
    scope: str = "global"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A comparison of a block's iterators, TVM's `expression` of `dimensions`. `left` is how many
    operations are left of it, by the sums that the iterators are; it grows."""

    expression: Any
    dimensions: tuple[int, ...]
    left: dict[Any, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """A store of a block. `conditions` are not among the operations of `compute`: how much is left
    of them differs."""

    store: BufferReference
    loads: tuple[BufferReference, ...]
    compute: Compute
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """`extents`, `reduces`, `axes` (slots) and `variables` are of its iterators. `first` is what it
    does before the first step of its reduction. `regions` are what it reads and writes.

    `given`: what it does is the same in all programs, and `work` tells its buffers alone.
    """

    name: str
    extents: tuple[int, ...]
    reduces: tuple[bool, ...]
    axes: tuple[int, ...]
    variables: tuple[Any, ...]
    work: Work
    first: Work | None
    regions: tuple[BufferReference, ...]
    given: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Copied:
    """The first step of a reduction that a sketch took out of its loops: `dimensions` are those of
    the iterators of `block` that it has, `slots` its own in place of theirs."""

    block: int
    dimensions: tuple[int, ...]
    slots: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Nested:
    """A loop over slots that were fused, outermost first; `axis` of threads of a GPU, or none."""

    slots: tuple[int, ...]
    run: Run = Run.SERIAL
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A block's loops are inside some of another's, `block`; `indices` say for each iterator what
    it follows of the other's (None: it runs over its whole domain). `buffer` is between them."""

    block: int
    indices: tuple[Index | None, ...]
    buffer: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """The innermost loop of a block is done by the threads of `threads` (slots) together, each with
    vectors of what choice `vector` says, if any."""

    vector: int
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Annotated:
    """What MetaSchedule's postprocessing is asked for: the longest parallel and vectorised loops.
    `unroll` is the choice of the steps that are unrolled."""

    parallel: int
    vectorize: int
    unroll: int


@dataclass(frozen=True, slots=True)
class Template:
    """`paths[i]` are the loops around `blocks[i]`, as numbers of `loops`, outermost first.

    `splits` are the slots that a slot was split into. `located` is the block whose place is choice
    `location`: `paths` have it at the root.
    """

    slots: tuple[Slot, ...]
    splits: Mapping[int, tuple[int, ...]]
    loops: tuple[Nested, ...]
    paths: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]
    buffers: tuple[Buffer, ...]
    anchors: Mapping[int, Anchor]
    annotated: Annotated | None
    #: Of blocks by number: the slots that a tensor instruction goes through.
    inside: Mapping[int, frozenset[int]]
    copies: Mapping[int, Copied]
    fetches: Mapping[int, Fetched] = field(default_factory=dict)
    location: int = -1
    located: int = -1
    located_anchor: Anchor | None = None
