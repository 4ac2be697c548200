"""Simplifies a block's conditions (image borders) for given loops.

TVM removes conditions that its loops imply, and writes iterators as sums of loops and of digits of
fused loops. TVM's simplifier is called once for all programs in which a condition's iterators are
the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from tunefleet.compiler.code.loop_nests import operations_of
from tunefleet.compiler.nests.program import Placed, SlotSteps, TemplateProgram
from tunefleet.compiler.nests.template import Condition, Unanswered
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

#: A digit of a loop: loop steps per digit step, number of digit steps (0: all remaining), stride.
Digit = tuple[int, int, int]
#: The parts of a fused and split loop: the position around the block, extent and step.
DigitParts = tuple[tuple[int, int, int], ...]
#: The terms and digits of an iterator.
DigitSum = tuple[tuple[DigitParts, tuple[Digit, ...]], ...]


def left_of(condition: Condition, program: TemplateProgram, store: Placed) -> Mapping[str, int]:
    """The remaining operations of a condition, by their names in `Compute`."""
    sums = tuple(_sum(program, store, d) for d in condition.dimensions)
    if len(sums) == 1:
        sums = (_numbered(sums[0]),)
    if sums not in condition.left:
        variables = [program.block(store.block).variables[d] for d in condition.dimensions]
        condition.left[sums] = _counted(condition.expression, variables, sums)
    return condition.left[sums]


def _numbered(total: DigitSum) -> DigitSum:
    """Renumbered: only the order of the loops matters."""
    found, number = [], 0
    for parts, digits in total:
        numbered = tuple((number + i, *part[1:]) for i, part in enumerate(parts))
        number += len(parts)
        found.append((numbered, digits))
    return tuple(found)


def _sum(program: TemplateProgram, store: Placed, dimension: int) -> DigitSum:
    steps = program.steps(store.block)[dimension]
    found: list[tuple[DigitParts, tuple[Digit, ...]]] = []
    for slots, group in groupby(enumerate(store.path), lambda each: each[1].slots):
        # Loops over the same slots are parts of one that was fused and split.
        loops = [(place, loop.extent, loop.step) for place, loop in group if loop.extent > 1]
        digits = _digits(program, slots, steps)
        if digits and loops:
            _, extent, step = loops[0]
            if extent * step > program.product(slots):
                # What bounds such a loop also simplifies what is inside of it.
                raise Unanswered("a condition in a loop that its parts do not divide")
            found.append((tuple(loops), digits))
    return tuple(found)


def _digits(
    program: TemplateProgram, slots: tuple[int, ...], steps: SlotSteps
) -> tuple[Digit, ...]:
    """The digit of a fused loop that an iterator uses."""
    joined: list[tuple[int, int]] = []
    for slot in slots:
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


def _counted(
    expression: Any, variables: list[Any], sums: tuple[DigitSum, ...]
) -> Mapping[str, int]:
    analyzer = tvm.sym.Analyzer()
    loops: dict[int, Any] = {}
    for variable, terms in zip(variables, sums, strict=True):
        dtype = str(variable.ty.dtype)
        value: Any = tvm.tirx.const(0, dtype)
        for parts, digits in terms:
            whole: Any = tvm.tirx.const(0, dtype)
            for place, extent, step in parts:
                if place not in loops:
                    loops[place] = tvm.tirx.Var(f"i{place}", dtype)
                    analyzer.bind(loops[place], tvm.ir.Range(0, extent))
                whole = whole + loops[place] * step
            for below, steps, stride in digits:
                value = value + _digit(whole, below, steps) * stride
        analyzer.bind(variable, value)
    simplified = analyzer.simplify(expression)
    if isinstance(simplified, tvm.tirx.IntImm) and not int(simplified):
        raise Unanswered("a condition that is never true")
    return operations_of(simplified)


def _digit(loop: Any, below: int, steps: int) -> Any:
    digit = tvm.tirx.floormod(loop, below * steps) if steps else loop
    return tvm.tirx.floordiv(digit, below) if below > 1 else digit
