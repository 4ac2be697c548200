"""The common structure of a sketch's programs, without decisions: blocks and their loops.

A slot is a loop before fusion. A block's axis starts as one slot; splits turn it into a sequence of
nested slots. The value of an iterator is a sum over the slots of its axis, each times the extents
of the slots after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunefleet.features.behaviours import Compute, Run, Statement


class Unanswered(Exception):
    """The statements of a program cannot be derived from its decisions; the text is the reason."""


@dataclass(frozen=True, slots=True)
class TilePart:
    """The extent of part `part` of the tile with the choice index `choice`."""

    choice: int
    part: int


@dataclass(frozen=True, slots=True)
class Fixed:
    extent: int


@dataclass(frozen=True, slots=True)
class Axis:
    """The extent of iterator `dimension` of a block: its `domain`, or, for a block moved into
    another's loops, the region needed there."""

    block: int
    dimension: int
    domain: int


@dataclass(frozen=True, slots=True)
class Rest:
    """The remaining factor of a split slot."""

    slot: int
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Same:
    """The extent of another slot."""

    slot: int


Slot = TilePart | Fixed | Axis | Rest | Same


@dataclass(frozen=True, slots=True)
class Index:
    """`extent` elements starting at `constant + sum(coefficient * iterator)`; `terms` are (block
    dimension, coefficient). `divisor`: the quotient of that sum, or with `remains` the
    remainder."""

    constant: int
    terms: tuple[tuple[int, int], ...]
    extent: int = 1
    divisor: int = 1
    remains: bool = False


@dataclass(frozen=True, slots=True)
class BufferReference:
    """An element of a buffer, or the start of a region. `flat` is its memory offset, for an
    argument whose indices are not sums."""

    buffer: int
    indices: tuple[Index, ...]
    lanes: int = 1
    flat: Index | None = None

    def first(self, shape: Sequence[int]) -> int:
        """The element offset in a buffer of a shape with all iterators at 0."""
        if self.flat is not None:
            return self.flat.constant
        found = 0
        for index, extent in zip(self.indices, shape, strict=True):
            found = found * extent + index.constant
        return found


@dataclass(frozen=True, slots=True)
class Buffer:
    """`packed`: a weight stored in reading order. `scope` is TVM's storage scope."""

    shape: tuple[int, ...]
    element_bytes: float
    argument: bool
    on_chip: bool
    packed: bool
    scope: str = "global"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A comparison of a block's iterators, TVM's `expression` of `dimensions`. `left` caches the
    number of remaining operations by the sums of the iterators."""

    expression: Any
    dimensions: tuple[int, ...]
    left: dict[Any, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """A store of a block. `compute` does not include the operations of `conditions`, since their
    simplification depends on the loops."""

    store: BufferReference
    loads: tuple[BufferReference, ...]
    compute: Compute
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """`extents`, `reduces`, `axes` (slots) and `variables` belong to its iterators. `first` is the
    initialisation of its reduction. `regions` are its reads and writes.

    `given`: its statements are equal in all programs, and `work` contains its buffers only.
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
    """A decomposed reduction's initialisation: `dimensions` are its iterators of `block`, `slots`
    its own slots in place of theirs."""

    block: int
    dimensions: tuple[int, ...]
    slots: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Nested:
    """A loop over fused slots, outermost first; `axis` is its GPU thread axis, if any."""

    slots: tuple[int, ...]
    run: Run = Run.SERIAL
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A block inside the loops of another, `block`. `indices` map each iterator to an index of the
    other's iterators (None: its whole domain). `buffer` connects them."""

    block: int
    indices: tuple[Index | None, ...]
    buffer: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A cooperative fetch: the threads of `threads` (slots) share the innermost loop of a block,
    with vectors of the width in choice `vector`, if any."""

    vector: int
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Annotated:
    """The annotations for MetaSchedule's postprocessing: maximum parallel and vector extents.
    `unroll` is the choice of the number of unrolled steps."""

    parallel: int
    vectorize: int
    unroll: int


@dataclass(frozen=True, slots=True)
class Template:
    """`paths[i]` are the loops around `blocks[i]`, as indices into `loops`, outermost first.

    `splits` maps a slot to the slots that it was split into. `located` is the block whose compute
    location is choice `location`: `paths` have it at the root.
    """

    slots: tuple[Slot, ...]
    splits: Mapping[int, tuple[int, ...]]
    loops: tuple[Nested, ...]
    paths: tuple[tuple[int, ...], ...]
    blocks: tuple[Block, ...]
    buffers: tuple[Buffer, ...]
    anchors: Mapping[int, Anchor]
    annotated: Annotated | None
    #: By block index: the slots covered by a tensor instruction.
    inside: Mapping[int, frozenset[int]]
    copies: Mapping[int, Copied]
    fetches: Mapping[int, Fetched] = field(default_factory=dict)
    location: int = -1
    located: int = -1
    located_anchor: Anchor | None = None
