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
from tunefleet.compiler.nests.template import Unanswered
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

#: A loop of an iterator's sum: its extent, its step, and (steps, how far each goes) of its slots.
_Term = tuple[int, int, tuple[tuple[int, int], ...]]
_Key = tuple[Any, ...]

_left: dict[_Key, Mapping[str, int]] = {}


def left_of(condition: Any, program: Program, store: Placed) -> Mapping[str, int]:
    """The operations of a condition by their names in `Compute`.

    Raises Unanswered where it is never true.
    """
    expression, dimensions = condition
    sums = tuple(
        (program.block(store.block).extents[d], _sum(program, store, d)) for d in dimensions
    )
    key = id(expression), sums
    if key not in _left:
        variables = program.block(store.block).variables
        _left[key] = _counted(expression, {variables[d]: s for d, (_, s) in zip(dimensions, sums)})
    return _left[key]


def _sum(program: Program, store: Placed, dimension: int) -> tuple[tuple[int, _Term], ...]:
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


def _counted(expression: Any, sums: Mapping[Any, Any]) -> Mapping[str, int]:
    analyzer = tvm.sym.Analyzer()
    loops: dict[int, Any] = {}
    for variable, terms in sums.items():
        value: Any = tvm.tirx.const(0, str(variable.ty.dtype))
        for place, (extent, step, digits) in terms:
            if step != 1:
                raise Unanswered("a condition of a loop that was fused and split")
            if place not in loops:
                loops[place] = tvm.tirx.Var(f"i{place}", str(variable.ty.dtype))
                analyzer.bind(loops[place], tvm.ir.Range(0, extent))
            value = value + _digits(loops[place], digits)
        analyzer.bind(variable, value)
    return operations_of(analyzer.simplify(expression))


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
