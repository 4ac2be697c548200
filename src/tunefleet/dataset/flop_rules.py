"""FLOPs derived from the loops of a program, with their certainty."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

#: Parts of a tiled space iterator: 4 for SSRSRS on a CPU, 5 for SSSRRSRS on a GPU.
_TILED = 3

#: Tile sizes of Winograd convolutions: F(2x2, 3x3), F(4x4, 3x3) and F(6x6, 3x3).
_WINOGRAD = (4, 6, 8)


class Certainty(StrEnum):
    """The certainty of a count of operations.

    EXACT: the multiplications and additions of the anchor operator (convolution, matrix product);
    fused element-wise operations are not counted. ESTIMATED: the order of magnitude is right, see
    the rule. UNKNOWN: the record does not contain it.
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

#: No task has more: larger extents are errors in the log, and would overflow.
_MOST = 10**24


def counted(count: int, how: Certainty, rule: str) -> Flops:
    """A count of operations; unknown if it is implausible."""
    return Flops(float(count), how, rule) if 0 < count <= _MOST else UNKNOWN


@dataclass(slots=True)
class _Nest:
    """The loops of one stage: the extent and the number of parts of each split iterator."""

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
        """Whether every iterator was split: the final reorder of tiling moved only split parts."""
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
    """FLOPs of a program of auto_scheduler, from the extents in its SP steps and its arguments.

    A stage with multi-level tiling is a contraction: all its space iterators are split into four
    parts (CPU) or five (GPU), all its reduction iterators into two or three. It has one
    multiplication and one addition per iteration; several such stages are summed.

    Estimates: a contraction with iterators that were not split, a contraction without reduction
    (one operation per iteration), the matrix products of a Winograd convolution (without its
    transforms), and a task without contraction (pooling, softmax, element-wise): one operation per
    element of its largest stage or argument, which is a lower bound.
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
    """Splits by stage. Steps refer to stages by position; caches and rfactors insert stages, so the
    positions are updated."""
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
                # Splits after tiling divide parts of iterators that are already counted.
                nest.splits.append((arguments[2], len(arguments[3])))
    return [nest for nest in nests.values() if nest.splits]


def _argument_elements(workload: str) -> list[int]:
    """Elements of each tensor in a workload key such as `["<hash>", [1, 64], [64, 64]]`."""
    try:
        key = json.loads(workload)
    except ValueError:
        return []
    if not isinstance(key, list):
        return []
    shapes = [value for value in key[1:] if isinstance(value, list) and value]
    return [prod(s) for s in shapes if all(isinstance(n, int) and n > 0 for n in s)]


def metaschedule_flops(steps: Iterable[Sequence[Any]]) -> Flops:
    """FLOPs of a MetaSchedule trace, instructions `[kind, inputs, attributes, outputs, decision]`.

    A block whose loops are all tiled by SamplePerfectTile, some into more parts than others, is a
    contraction: the product of a decision's factors is the extent of its loop. The count is an
    estimate, because fused blocks may be padded. It is unknown for traces without such a block, and
    for traces that tensorize: these tile only the loops outside of the intrinsic.
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
    """Whether a decision is present and lists the lengths of tiles."""
    return bool(decision and isinstance(decision[0], list)) and all(
        isinstance(length, int) for length in decision[0]
    )


def _contracts(loops: dict[str, list[int]]) -> bool:
    parts = {len(tiles) for tiles in loops.values()}
    return len(parts) > 1 and 0 not in parts and max(parts) > _TILED
