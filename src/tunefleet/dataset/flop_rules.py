"""Floating-point operations read off a program: what its loops say, and how sure that is."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

#: Parts of a tiled space iterator: SSRSRS on a CPU makes 4 of it, SSSRRSRS on a GPU 5.
_TILED = 3

#: Sides of the tiles of a Winograd convolution: F(2x2, 3x3), F(4x4, 3x3) and F(6x6, 3x3).
_WINOGRAD = (4, 6, 8)


class Certainty(StrEnum):
    """What a count of operations rests on.

    EXACT: the multiplications and additions of the anchor operator (convolution, matrix product);
    element-wise operations fused before or after it are not counted. ESTIMATED: right in its order
    of magnitude, see the rule. UNKNOWN: the record does not say.
    """

    EXACT = "exact"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Flops:
    """Operations of one execution; `count` is None exactly when `how` is unknown."""

    count: float | None
    how: Certainty
    rule: str = ""

    def __post_init__(self) -> None:
        if (self.count is None) != (self.how is Certainty.UNKNOWN):
            raise ValueError(f"{self.how} FLOPs of {self.count}")
        if self.count is not None and not self.count > 0:
            raise ValueError(f"FLOPs are positive, not {self.count}")


UNKNOWN = Flops(None, Certainty.UNKNOWN)

#: No task has more: such extents are an error of the log, and would not fit a number.
_MOST = 10**24


def counted(count: int, how: Certainty, rule: str) -> Flops:
    """That many operations; unknown for a count that cannot be true."""
    return Flops(float(count), how, rule) if 0 < count <= _MOST else UNKNOWN


@dataclass(slots=True)
class _Nest:
    """The loops of one stage: the extent of each split iterator and into how many more it went."""

    splits: list[tuple[int, int]]
    reordered: int = 0

    @property
    def tiled(self) -> bool:
        return any(added >= _TILED for _, added in self.splits)

    @property
    def iterations(self) -> int:
        return prod(extent for extent, _ in self.splits)

    @property
    def complete(self) -> bool:
        """Every iterator was split: the reorder that ends tiling moved just what splits made."""
        made = sum(added + 1 for _, added in self.splits)
        return self.reordered == made and all(extent > 0 for extent, _ in self.splits)

    @property
    def reduces(self) -> bool:
        return len({added for _, added in self.splits}) > 1

    @property
    def winograd(self) -> bool:
        """Tile by tile (a x a) products of all pixels by all channels, reduced over channels."""
        extents = [extent for extent, _ in self.splits]
        return len(extents) == 5 and extents[0] == extents[1] and extents[0] in _WINOGRAD


def auto_scheduler_flops(workload: str, steps: Iterable[Sequence[Any]]) -> Flops:
    """Of a program of auto_scheduler, from the extents in its SP steps and its arguments.

    A stage with multi-level tiling is a contraction: its space iterators are split into four parts
    (CPU) or five (GPU), its reduction iterators into two or three, all of them. It makes one
    multiplication and one addition per iteration; several such stages add up.

    Estimated are: a contraction with iterators that were not split, one without reduction (one
    operation an iteration), the matrix products of a Winograd convolution (its transforms are not
    counted), and a task without contraction (pooling, softmax, element-wise): one operation for
    each element of its largest stage or argument, which is a lower bound.
    """
    nests = _nests(steps)
    tiled = [nest for nest in nests if nest.tiled and nest.iterations > 0]
    if tiled:
        count = sum(nest.iterations * (2 if nest.reduces else 1) for nest in tiled)
        if any(nest.winograd for nest in tiled):
            return counted(count, Certainty.ESTIMATED, "products of a Winograd convolution")
        if all(nest.complete and nest.reduces for nest in tiled):
            return counted(count, Certainty.EXACT, "tiled contraction")
        return counted(count, Certainty.ESTIMATED, "part of the loops of a contraction")
    largest = max([*(nest.iterations for nest in nests), *_argument_elements(workload)], default=0)
    return counted(largest, Certainty.ESTIMATED, "one operation per element")


def _nests(steps: Iterable[Sequence[Any]]) -> list[_Nest]:
    """Splits by stage. A step names a stage by its place, and caches and rfactors insert stages
    before it: places are followed, so that a stage keeps its splits."""
    places: list[int] = []
    nests: dict[int, _Nest] = defaultdict(lambda: _Nest([]))
    made = 0

    def reach(place: int) -> None:
        nonlocal made
        while len(places) <= place:
            places.append(made)
            made += 1

    def insert(place: int) -> None:
        nonlocal made
        reach(place)
        places.insert(place, made)
        made += 1

    for code, *arguments in steps:
        if code in ("CHW", "RF"):
            insert(arguments[0])
        elif code == "CHR":
            insert(arguments[0] + 1)
        elif code in ("SP", "RE"):
            reach(arguments[0])
            nest = nests[places[arguments[0]]]
            if code == "RE":
                nest.reordered = nest.reordered or len(arguments[1])
            elif not nest.reordered:
                # What is split after tiling are parts of iterators that were counted already.
                nest.splits.append((arguments[2], len(arguments[3])))
    return [nest for nest in nests.values() if nest.splits]


def _argument_elements(workload: str) -> list[int]:
    """Elements of each tensor that the workload key names: `["<hash>", [1, 64], [64, 64]]`."""
    try:
        key = json.loads(workload)
    except ValueError:
        return []
    if not isinstance(key, list):
        return []
    shapes = [value for value in key[1:] if isinstance(value, list) and value]
    return [prod(s) for s in shapes if all(isinstance(n, int) and n > 0 for n in s)]


def metaschedule_flops(steps: Iterable[Sequence[Any]]) -> Flops:
    """Of a trace of MetaSchedule, instructions `[kind, inputs, attributes, outputs, decision]`.

    A block whose loops are all tiled by SamplePerfectTile, some of them into more parts than
    others, is a contraction: each decision multiplies up to the extent of its loop. Estimated,
    because blocks fused with it may have been padded. A trace that tensorizes tiles only what is
    outside the intrinsic: unknown, as is one without such a block.
    """
    blocks: list[dict[str, list[int]]] = []
    for kind, inputs, _, outputs, *decision in steps:
        if kind in ("Blockize", "Tensorize", "TransformLayout"):
            return UNKNOWN
        if kind == "GetLoops":
            blocks.append({loop: [] for loop in outputs})
        elif kind == "SamplePerfectTile" and _tiles(decision):
            loops = next((b for b in reversed(blocks) if inputs[0] in b), None)
            if loops is not None:
                loops[inputs[0]] = decision[0]
    count = sum(2 * prod(map(prod, loops.values())) for loops in blocks if _contracts(loops))
    return counted(count, Certainty.ESTIMATED, "tiled contraction")


def _tiles(decision: list[Any]) -> bool:
    """Whether a decision is there, and is the lengths of tiles."""
    return bool(decision and isinstance(decision[0], list)) and all(
        isinstance(length, int) for length in decision[0]
    )


def _contracts(loops: dict[str, list[int]]) -> bool:
    parts = {len(tiles) for tiles in loops.values()}
    return len(parts) > 1 and 0 not in parts and max(parts) > _TILED
