"""The plain schedule for untuned programs, without search and measurement.

TVM keeps loops as they are written, which can be hundreds of times slower than necessary. That
would be too slow for checking imports and for tasks that a budget did not reach.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import REDUCTION, SPATIAL

tvm = load_tvm()

#: Minimum iterations of a block for which threads are worth their cost.
LEAST_PARALLEL = 1 << 15


def plainly_scheduled(module: Any) -> Any:
    """`module`, with the single function `main`, with elementwise blocks inlined into their
    readers, the last spatial loop of every block inside its reduction, and parallel outer loops.
    The order of sums is unchanged.

    Blocks of other forms are unchanged.
    """
    schedule = tvm.s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    root = schedule.get_sblock("root", func_name="main")
    for step in (_inline, _schedule):
        for block in schedule.get_child_blocks(root):
            # Primitives applied before a failing one remain: each preserves the semantics.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                step(schedule, block)
    return schedule.mod


def _inline(schedule: Any, block: Any) -> None:
    """Inline a block into its only reader, unless that would repeat computation.

    A chain of loops costs a pass through memory per block, and LLVM unrolls whole loops to forward
    the values of an internal buffer: twelve seconds for 20 x 1024 elements.
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
        # LLVM takes seconds for an initialisation inside several loops.
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
