"""How far loops and iterators of a template go with a program's decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.compiler.nests.postprocessing import placed, postprocessed
from tunefleet.compiler.nests.program import TemplateProgram
from tunefleet.compiler.nests.template import (
    Anchor,
    Annotated,
    Axis,
    Block,
    Buffer,
    BufferReference,
    Fixed,
    Index,
    Nested,
    Rest,
    Template,
    TilePart,
    Unanswered,
    Work,
)
from tunefleet.features.behaviours import Compute, Run

pytestmark = pytest.mark.tvm  # which the modules under test import


def index(*terms: tuple[int, int], constant: int = 0) -> Index:
    return Index(constant, terms)


def block(name: str, axes: tuple[int, ...], extents: tuple[int, ...], **more: Any) -> Block:
    store = BufferReference(0, (index((0, 1)),))
    work = Work(store, more.pop("loads", ()), Compute())
    reduces = more.pop("reduces", (False,) * len(axes))
    return Block(name, extents, reduces, axes, (), work, None, (store,), **more)


def template(**more: Any) -> Template:
    """A sum of 24 numbers in windows of 3: `x` (24) in two parts, `k` (3) as it is."""
    slots = (Axis(0, 0, 24), Axis(0, 1, 3), TilePart(0, 0), TilePart(0, 1), Axis(1, 0, 50))
    main = block("main", (0, 1), (24, 3), reduces=(False, True))
    settings: dict[str, Any] = {
        "slots": slots,
        "splits": {0: (2, 3)},
        "loops": (Nested((2,)), Nested((1,)), Nested((3,)), Nested((4,))),
        "paths": ((0, 1, 2), (3,)),
        "blocks": (main, block("pad", (4,), (50,))),
        "buffers": (Buffer((24,), 4, argument=True, on_chip=False, packed=False),),
        "anchors": {},
        "annotated": None,
        "inside": {},
        "copies": {},
    }
    return Template(**(settings | more))


def test_a_part_goes_as_far_as_all_parts_inside_it() -> None:
    program = TemplateProgram(template(), [[4, 6]])
    assert program.steps(0) == [{2: 6, 3: 1}, {1: 1}]
    assert [loop.extent for loop in program.paths[0]] == [4, 3, 6]


def test_a_block_that_is_moved_runs_over_what_is_needed_of_it() -> None:
    """x * 2 + k, for the six x and the three k inside of the loop."""
    window = Anchor(0, (index((0, 2), (1, 1)),))
    moved = template(location=1, located=1, located_anchor=window)
    assert TemplateProgram(moved, [[4, 6], [-1]]).extent(4) == 50
    program = TemplateProgram(moved, [[4, 6], [0]])
    assert program.extent(4) == 5 * 2 + 2 + 1
    assert program.steps(1) == [{2: 12, 4: 1}]
    assert program.paths[1][0] is program.paths[0][0]
    assert program.order == [1, 0]


@pytest.mark.parametrize("location", [-2, 1, 2])
def test_a_location_that_is_not_known_is_not_answered(location: int) -> None:
    anchor = Anchor(0, (index((0, 1)),)) if location == 2 else None
    moved = template(location=1, located=1, located_anchor=anchor)
    with pytest.raises(Unanswered):
        TemplateProgram(moved, [[24, 1], [location]])


def test_loops_beyond_a_block_are_not_answered() -> None:
    small = Anchor(0, (index((0, 3)),))
    with pytest.raises(Unanswered, match="beyond"):
        TemplateProgram(template(location=1, located=1, located_anchor=small), [[4, 6], [0]])


def test_what_does_not_divide_a_loop_is_not_answered() -> None:
    slots = (Axis(0, 0, 24), Axis(0, 1, 3), Rest(0, (3,)), Fixed(5), Axis(1, 0, 50))
    with pytest.raises(Unanswered, match="divide"):
        TemplateProgram(template(slots=slots), [])


def test_outer_loops_are_parallel_up_to_a_reduction_and_inner_ones_vectorised() -> None:
    program = TemplateProgram(template(annotated=Annotated(16, 64, -1)), [[4, 6]])
    postprocessed(program)
    assert [(loop.extent, loop.run) for loop in program.paths[0]] == [
        (4, Run.PARALLEL),
        (3, Run.SERIAL),
        (6, Run.VECTORIZED),
    ]


def test_loops_through_all_of_a_buffer_are_fused_and_split() -> None:
    program = TemplateProgram(template(annotated=Annotated(16, 5, -1)), [[4, 6]])
    postprocessed(program)
    assert [(loop.extent, loop.step, loop.run) for loop in program.paths[1]] == [
        (10, 5, Run.PARALLEL),
        (5, 1, Run.VECTORIZED),
    ]


def test_a_first_step_comes_before_the_loops_of_its_reduction() -> None:
    plain = template()
    first = Work(plain.blocks[0].work.store, (), Compute())
    main = replace(plain.blocks[0], first=first)
    program = TemplateProgram(template(blocks=(main, plain.blocks[1])), [[4, 6]])
    stores = placed(program)
    assert [store.block for store in stores] == [0, 0, 1]
    assert [loop.slots for loop in stores[0].path] == [(2,), (3,)]
    assert stores[0].path[1] is not stores[1].path[2]
