"""Opens the search space of a task on a target: its sketches as arrays of decisions.

Each worker caches the spaces of its tasks; losing the cache only costs time.
"""

from __future__ import annotations

from functools import lru_cache

from tunefleet.compiler.space.spaces import sketches_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.target import Target
from tunefleet.search.task_space import TaskSpace

__all__ = ["sketches_of", "task_space"]

tvm = load_tvm()


@lru_cache(maxsize=256)
def task_space(program: str, target: Target) -> TaskSpace:
    """The cached space of a task on a target."""
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(
        load_program(program)["main"]
    )
    shapes = tuple(tuple(int(d) for d in a.shape) for a in arguments)
    return TaskSpace(sketches_of(program, target), shapes)


def has_tensorised(program: str, target: Target) -> bool:
    """Whether a task has programs with tensor instructions on a target."""
    return any(
        instruction[0] == "Tensorize"
        for sketch in task_space(program, target).decisions.sketches
        for instruction in sketch.instructions
    )
