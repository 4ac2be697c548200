"""A lowered program as what its loop nests do: schema `behaviours/1`, plain and tensorised alike.

A program is a row for its task and its device and, in the order of its statements, a row for each
load, computation and store. Rows have 139 columns; sizes are log2(1 + x), of what may be negative
with its sign.

    0-3     one-hot: program, load, compute, store
    4-35    of the program: its context (`features/context.py`)
    36-119  of the 12 innermost loops around, the innermost first: extent, one-hot (parallel,
            vectorized, unrolled, bound to blocks, threads or virtual threads of a GPU), by how
            many elements an access moves with it (of a computation that of what it stores),
            whether by one
    120     iterations of all loops around
    121-130 of an access: bytes of an element, elements of a vector, bytes of the buffer, bytes
            that are touched in all, within the 2, 4 and 6 innermost loops, iterations per element
            touched, and whether the buffer is an argument, or is shared or local on a chip
    131-138 of a computation: additions, products, divisions, comparisons, elementary functions,
            casts; of a tensor instruction a number for its name and products of its lanes

Extents and strides are exact, fused loops included: an index is evaluated along each loop. What is
touched takes the loops to move independently of each other.
Source: Wang et al., UniCoMo, ICCD 2024 (three kinds of behaviour, each with its loops, its affine
access and its buffer or intrinsic); numbers in place of ids, so that what is alike looks alike.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tunefleet.features import context
from tunefleet.features.words import compressed

SCHEMA = "behaviours/1"

LOOPS = 12
#: Maximum number of rows of a program; longer ones are cropped.
LONGEST = 64

_KINDS, _PER_LOOP = 4, 7
_LOOPS_AT = _KINDS + context.COLUMNS
_ITERATIONS_AT = _LOOPS_AT + LOOPS * _PER_LOOP
_ACCESS_AT = _ITERATIONS_AT + 1
_COMPUTE_AT = _ACCESS_AT + 10
WIDTH = _COMPUTE_AT + 8

#: Groups of columns with one meaning.
PARTS: dict[str, list[int]] = {
    "extents of loops": [*range(_LOOPS_AT, _ITERATIONS_AT, _PER_LOOP), _ITERATIONS_AT],
    "how loops run": [
        at + kind for at in range(_LOOPS_AT, _ITERATIONS_AT, _PER_LOOP) for kind in (1, 2, 3, 4)
    ],
    "strides": [
        at + kind for at in range(_LOOPS_AT, _ITERATIONS_AT, _PER_LOOP) for kind in (5, 6)
    ],
    "bytes touched, and how often": [*range(_ACCESS_AT + 3, _ACCESS_AT + 8)],
    "elements, vectors and buffers": [
        *range(_ACCESS_AT, _ACCESS_AT + 3), _ACCESS_AT + 8, _ACCESS_AT + 9,
    ],
    "arithmetic": [*range(_COMPUTE_AT, _COMPUTE_AT + 6)],
    "tensor instruction": [_COMPUTE_AT + 6, _COMPUTE_AT + 7],
}  # fmt: skip

_DEPTHS = (2, 4, 6)
_NAMES = 64

Array = NDArray[np.float32]


class Run(StrEnum):
    """How the iterations of a loop run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    BOUND = "bound"


_ANNOTATED = (Run.PARALLEL, Run.VECTORIZED, Run.UNROLLED, Run.BOUND)


@dataclass(frozen=True, slots=True)
class Loop:
    extent: int
    run: Run = Run.SERIAL


@dataclass(frozen=True, slots=True)
class Move:
    """The movement of an access along one loop with all others fixed: the elements that it moves by
    in the first step, and the number of distinct positions."""

    stride: int
    places: int


@dataclass(frozen=True, slots=True)
class Access:
    """Elements of a buffer that a statement reads or writes per iteration; `moves` are its
    movements along the surrounding loops, outermost first."""

    moves: tuple[Move, ...]
    element_bytes: float
    buffer_elements: int
    lanes: int = 1
    argument: bool = False
    on_chip: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """Operations of one iteration, with an optional tensor instruction."""

    additions: int = 0
    products: int = 0
    divisions: int = 0
    comparisons: int = 0
    functions: int = 0
    casts: int = 0
    instruction: str = ""
    instruction_lanes: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """A store with its loads, its computation and its surrounding loops, outermost first."""

    loops: tuple[Loop, ...]
    loads: tuple[Access, ...]
    compute: Compute
    store: Access


def encode(statements: Sequence[Statement], context: Array) -> Array:
    """(rows, WIDTH) of a program; `context` (32,) are its task and device features."""
    count = 1 + sum(2 + len(statement.loads) for statement in statements)
    rows = np.zeros((min(count, LONGEST), WIDTH), np.float32)
    rows[0, 0] = 1.0
    rows[0, _KINDS:_LOOPS_AT] = context
    behaviours = (row for statement in statements for row in _behaviours(statement))
    for row, behaviour in zip(rows[1:], behaviours, strict=False):
        _write(row, *behaviour)
    return rows


class Behaviour(StrEnum):
    """The kind of a row."""

    PROGRAM = "the program and its device"
    LOAD_ARGUMENT = "load of an argument"
    LOAD = "load of what is between"
    INSTRUCTION = "computation by a tensor instruction"
    PRODUCTS = "computation with products"
    COMPUTE = "other computation"
    STORE_OUTPUT = "store of an argument"
    STORE = "store of what is between"


def behaviours_of(rows: Array) -> list[Behaviour]:
    """The kind of each row of an encoded program."""
    return [_behaviour(row) for row in rows]


def _behaviour(row: Array) -> Behaviour:
    argument = row[_ACCESS_AT + 8] > 0
    if row[0]:
        return Behaviour.PROGRAM
    if row[1]:
        return Behaviour.LOAD_ARGUMENT if argument else Behaviour.LOAD
    if row[3]:
        return Behaviour.STORE_OUTPUT if argument else Behaviour.STORE
    if row[_COMPUTE_AT + 6] > 0:
        return Behaviour.INSTRUCTION
    return Behaviour.PRODUCTS if row[_COMPUTE_AT + 1] > 0 else Behaviour.COMPUTE


def _behaviours(
    statement: Statement,
) -> list[tuple[int, tuple[Loop, ...], Access, Compute | None]]:
    loops = statement.loops
    return [
        *((1, loops, access, None) for access in statement.loads),
        (2, loops, statement.store, statement.compute),
        (3, loops, statement.store, None),
    ]


def _write(
    row: Array, kind: int, loops: tuple[Loop, ...], access: Access, compute: Compute | None
) -> None:
    row[kind] = 1.0
    innermost = list(zip(reversed(loops), reversed(access.moves), strict=True))
    for place, (loop, move) in enumerate(innermost[:LOOPS]):
        at = _LOOPS_AT + place * _PER_LOOP
        row[at] = compressed(loop.extent)
        if loop.run in _ANNOTATED:
            row[at + 1 + _ANNOTATED.index(loop.run)] = 1.0
        row[at + 1 + len(_ANNOTATED)] = compressed(move.stride)
        # Whether the stride is one is more informative than its size.
        row[at + 2 + len(_ANNOTATED)] = float(abs(move.stride) == 1)
    iterations = math.prod(loop.extent for loop in loops)
    row[_ITERATIONS_AT] = compressed(iterations)
    if compute is None:
        row[_ACCESS_AT:_COMPUTE_AT] = _of_access(access, innermost, iterations)
    else:
        row[_COMPUTE_AT:] = _of_compute(compute)


def _of_access(access: Access, innermost: list[tuple[Loop, Move]], iterations: int) -> list[float]:
    touched = [_touched(access, innermost[:depth]) for depth in (len(innermost), *_DEPTHS)]
    return [
        access.element_bytes,
        compressed(access.lanes),
        compressed(access.buffer_elements * access.element_bytes),
        *(compressed(elements * access.element_bytes) for elements in touched),
        compressed(iterations * access.lanes / touched[0]),
        float(access.argument),
        float(access.on_chip),
    ]


def _touched(access: Access, loops: Sequence[tuple[Loop, Move]]) -> int:
    moved = math.prod(move.places for _, move in loops)
    return max(1, min(access.lanes * moved, access.buffer_elements))


def _of_compute(compute: Compute) -> list[float]:
    counts = (compute.additions, compute.products, compute.divisions, compute.comparisons,
              compute.functions, compute.casts)  # fmt: skip
    name = compute.instruction
    number = 1.0 + zlib.crc32(name.encode(errors="replace")) % _NAMES if name else 0.0
    return [*map(compressed, counts), number, compressed(compute.instruction_lanes)]
