"""What is left of a block's conditions (borders of a picture) once its loops are known.

TVM leaves out what its loops make true, and writes iterators as sums of loops and of digits of
fused ones. Its own simplifier is asked, once for all programs in which a condition's iterators are
the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunefleet.compiler.code.loop_nests import operations_of
from tunefleet.compiler.nests.program import Placed, Program
from tunefleet.compiler.nests.template import Condition, Unanswered
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

#: A loop of an iterator's sum: its extent, its step, and (steps, how far each goes) of its slots.
Term = tuple[int, int, tuple[tuple[int, int], ...]]
#: Of an iterator: its loops by their place around the block.
Sum = tuple[tuple[int, Term], ...]


def left_of(condition: Condition, program: Program, store: Placed) -> Mapping[str, int]:
    """The operations that are left of a condition, by their names in `Compute`."""
    extents = program.block(store.block).extents
    sums = tuple((extents[d], _sum(program, store, d)) for d in condition.dimensions)
    if sums not in condition.left:
        variables = [program.block(store.block).variables[d] for d in condition.dimensions]
        values = [each for _, each in sums]
        condition.left[sums] = _counted(condition.expression, variables, values)
    return condition.left[sums]


def _sum(program: Program, store: Placed, dimension: int) -> Sum:
    steps = program.steps(store.block)[dimension]
    found = []
    for place, loop in enumerate(store.path):
        digits = tuple(
            (program.extent(slot), steps.get(slot, 0))
            for slot in loop.slots
            if program.extent(slot) > 1
        )
        if any(step for _, step in digits):
            found.append((place, (loop.extent, loop.step, digits)))
    return tuple(found)


def _counted(expression: Any, variables: list[Any], sums: list[Sum]) -> Mapping[str, int]:
    analyzer = tvm.sym.Analyzer()
    loops: dict[int, Any] = {}
    for variable, terms in zip(variables, sums, strict=True):
        value: Any = tvm.tirx.const(0, str(variable.ty.dtype))
        for place, (extent, step, digits) in terms:
            if step != 1:
                raise Unanswered("a condition of a loop that was fused and split")
            if place not in loops:
                loops[place] = tvm.tirx.Var(f"i{place}", str(variable.ty.dtype))
                analyzer.bind(loops[place], tvm.ir.Range(0, extent))
            value = value + _digits(loops[place], digits)
        analyzer.bind(variable, value)
    simplified = analyzer.simplify(expression)
    if isinstance(simplified, tvm.tirx.IntImm) and not int(simplified):
        raise Unanswered("a condition that is never true")
    return operations_of(simplified)


def _digits(loop: Any, digits: tuple[tuple[int, int], ...]) -> Any:
    """A sum of digits of a fused loop, those together that go on where the next one ends."""
    joined: list[tuple[int, int]] = []
    for steps, stride in digits:
        if joined and joined[-1][1] == stride * steps:
            joined[-1] = joined[-1][0] * steps, stride
        else:
            joined.append((steps, stride))
    total, below = 0, 1
    for number, (steps, stride) in reversed(list(enumerate(joined))):
        if stride:
            digit = loop if number == 0 else tvm.tirx.floormod(loop, below * steps)
            digit = tvm.tirx.floordiv(digit, below) if below > 1 else digit
            total = digit * stride + total
        below *= steps
    return total
