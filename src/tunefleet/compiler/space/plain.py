"""A plain schedule for programs that nobody tuned: no search, no measurement.

TVM leaves loops as they were written, which runs networks hundreds of times slower than they need.
Checking an import and tasks that a budget did not reach should not cost that.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import REDUCTION, SPATIAL

tvm = load_tvm()

#: Iterations of a block below which threads cost more than they bring.
LEAST_PARALLEL = 1 << 15


def plainly_scheduled(module: Any) -> Any:
    """`module`, whose only function is `main`, with elementwise steps inside of what reads them,
    the last spatial loop of every block inside its reduction and the outer ones in parallel. Sums
    keep their order.

    Blocks of a form that this does not fit stay as they are.
    """
    schedule = tvm.s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    root = schedule.get_sblock("root", func_name="main")
    for step in (_inline, _schedule):
        for block in schedule.get_child_blocks(root):
            # What was applied before a primitive is refused stays: each keeps the meaning.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                step(schedule, block)
    return schedule.mod


def _inline(schedule: Any, block: Any) -> None:
    """Into its only reader, where that evaluates nothing more often.

    A chain of loops costs a pass through memory for each step, and LLVM unrolls whole loops to
    hand on what a buffer of its own holds: twelve seconds for 20 x 1024 numbers.
    """
    readers = schedule.get_consumers(block)
    if len(readers) == 1 and _iterations(schedule, readers[0]) <= _iterations(schedule, block):
        schedule.compute_inline(block)


def _iterations(schedule: Any, block: Any) -> int:
    return math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block))


def _schedule(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block)
    kinds = [int(v.iter_type) for v in schedule.get(block).iter_vars]
    if len(loops) != len(kinds) or not set(kinds) <= {SPATIAL, REDUCTION}:
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
    reductions = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCTION]
    if not spatial:
        # LLVM takes seconds over a first step that is asked for inside of several loops.
        if reductions:
            schedule.decompose_reduction(block, reductions[0])
        return
    *outer, last = spatial
    if reductions:
        schedule.reorder(*outer, *reductions, last)
    if outer and _iterations(schedule, block) >= LEAST_PARALLEL:
        schedule.parallel(schedule.fuse(*outer))
    if reductions:
        schedule.decompose_reduction(block, reductions[0])
