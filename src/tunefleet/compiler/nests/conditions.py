"""What is left of a block's conditions (borders of a picture) once its loops are known.

TVM leaves out what its loops make true, and writes iterators as sums of loops and of digits of
fused ones. Its own simplifier is asked, once for all programs in which a condition's iterators are
the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefleet.compiler.code.loop_nests import operations_of
from tunefleet.compiler.nests.program import Around, Placed, Program, Steps
from tunefleet.compiler.nests.template import Condition, Unanswered
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

#: Of a loop: how many of its steps one of the digit's is, how many the digit has (0: all that are
#: left), how far each goes.
Digit = tuple[int, int, int]
#: Of an iterator: the place of each loop around the block that moves it, its extent, its digits.
Sum = tuple[tuple[int, int, tuple[Digit, ...]], ...]


def left_of(condition: Condition, program: Program, store: Placed) -> Mapping[str, int]:
    """The operations that are left of a condition, by their names in `Compute`."""
    sums = tuple(_sum(program, store, d) for d in condition.dimensions)
    if len(sums) == 1:
        # Which loops they are does not matter.
        sums = (tuple((place, *each[1:]) for place, each in enumerate(sums[0])),)
    if sums not in condition.left:
        variables = [program.block(store.block).variables[d] for d in condition.dimensions]
        condition.left[sums] = _counted(condition.expression, variables, sums)
    return condition.left[sums]


def _sum(program: Program, store: Placed, dimension: int) -> Sum:
    steps = program.steps(store.block)[dimension]
    found = []
    for place, loop in enumerate(store.path):
        if steps.keys().isdisjoint(loop.slots) or loop.extent == 1:
            continue
        if loop.step != 1:
            raise Unanswered("a condition of a loop that was fused and split")
        digits = _digits(program, loop, steps)
        if digits:
            found.append((place, loop.extent, digits))
    return tuple(found)


def _digits(program: Program, loop: Around, steps: Steps) -> tuple[Digit, ...]:
    """What an iterator takes of a fused loop: one digit of those that go on in each other."""
    joined: list[tuple[int, int]] = []
    for slot in loop.slots:
        extent, stride = program.extent(slot), steps.get(slot, 0)
        if extent == 1:
            continue
        if joined and joined[-1][1] == stride * extent:
            joined[-1] = joined[-1][0] * extent, stride
        else:
            joined.append((extent, stride))
    found, below = [], 1
    for number, (extent, stride) in reversed(list(enumerate(joined))):
        if stride:
            found.append((below, extent if number else 0, stride))
        below *= extent
    return tuple(found)


def _counted(expression: Any, variables: list[Any], sums: tuple[Sum, ...]) -> Mapping[str, int]:
    analyzer = tvm.sym.Analyzer()
    loops: dict[int, Any] = {}
    for variable, terms in zip(variables, sums, strict=True):
        value: Any = tvm.tirx.const(0, str(variable.ty.dtype))
        for place, extent, digits in terms:
            if place not in loops:
                loops[place] = tvm.tirx.Var(f"i{place}", str(variable.ty.dtype))
                analyzer.bind(loops[place], tvm.ir.Range(0, extent))
            for below, steps, stride in digits:
                value = value + _digit(loops[place], below, steps) * stride
        analyzer.bind(variable, value)
    simplified = analyzer.simplify(expression)
    if isinstance(simplified, tvm.tirx.IntImm) and not int(simplified):
        raise Unanswered("a condition that is never true")
    return operations_of(simplified)


def _digit(loop: Any, below: int, steps: int) -> Any:
    digit = tvm.tirx.floormod(loop, below * steps) if steps else loop
    return tvm.tirx.floordiv(digit, below) if below > 1 else digit
