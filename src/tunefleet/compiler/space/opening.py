"""Opens the search space of a task on a target: sketches of its programs as arrays of decisions.

A worker keeps the spaces of the tasks it has seen; losing them costs time only.
"""

from __future__ import annotations

from functools import lru_cache

from tunefleet.compiler.space.cpu import design_space
from tunefleet.compiler.space.sketching import open_sketch
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.target import Target
from tunefleet.search.sketch import Sketch
from tunefleet.search.task_space import TaskSpace

tvm = load_tvm()


def sketches_of(program: str, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a task on a target. Takes half a second for the first convolution with
    padding of its kind.

    Raises InternalError for a sampling instruction that CPU schedules do not have.
    """
    # MetaSchedule's search drops instructions without effect too: its traces have none.
    return tuple(
        open_sketch(form, schedule.trace.simplified(remove_postproc=True))
        for form, schedule in design_space(program, target)
    )


@lru_cache(maxsize=256)
def task_space(program: str, target: Target) -> TaskSpace:
    """The space of a task on a target, opened once."""
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(
        load_program(program)["main"]
    )
    shapes = tuple(tuple(int(d) for d in a.shape) for a in arguments)
    return TaskSpace(sketches_of(program, target), shapes)
