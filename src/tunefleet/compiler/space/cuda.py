"""The search space of NVIDIA GPUs: products by tensor cores, MetaSchedule's tilings with shared
memory, reductions across threads, and blocks bound to threads. What is written as kernels has one
program, which is it as it is.

Sketches of a tiled block come with and, where the GPU copies to shared memory on its own (sm_80 and
later), also with the fetches of the next steps under way. Everything that samples is a perfect tile
or a category: steps of unrolling, the width of a fetch, the threads of a reduction or of a block.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tunefleet.compiler.space.blocks import limits_of
from tunefleet.compiler.space.matrices import plain_threads
from tunefleet.compiler.space.sketching import open_sketch
from tunefleet.compiler.space.tensor_cores import CudaTensorCores
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import POSTPROCESSED, REDUCTION, SPATIAL
from tunefleet.core.target import CudaTarget, Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule

#: Threads that share a sum, as MetaSchedule has them for NVIDIA's GPUs.
_SUMMING_THREADS = (4, 8, 16, 32, 64, 128, 256, 512)


class CudaKernels:
    """Programs that are kernels already (`graph/kernels.py`, TVM's own definitions of scattering):
    rules would bind their threads to threads once more."""

    def generator(self, target: Target, module: Any) -> Any:
        return _as_told(lambda schedule: [schedule] if _is_kernels(schedule) else [])

    def made(self, trace: str) -> bool:
        """Every other program of a GPU has a step that binds threads."""
        instructions, _ = json.loads(trace)
        return all(instruction[0] == POSTPROCESSED for instruction in instructions)

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        return open_sketch(module, open_trace)


class CudaTilings:
    """MetaSchedule's rules for CUDA cores."""

    def generator(self, target: Target, module: Any) -> Any:
        """Without the rule that applies rules by the name that an operator asks for: there are none
        for GPUs, and each missing one is a warning."""
        if module.functions and _is_kernels(tvm.s_tir.Schedule(module)):
            return _as_told(lambda schedule: [])
        assert isinstance(target, CudaTarget)
        rules = [
            _within_limit(rule, target)
            for rule in ms.schedule_rule.ScheduleRule.create("cuda")
            if not isinstance(rule, ms.schedule_rule.ApplyCustomRule)
        ]
        return ms.space_generator.PostOrderApply(
            sch_rules=rules,
            postprocs=ms.postproc.Postproc.create("cuda"),
            mutator_probs=ms.mutator.Mutator.create("cuda"),
        )

    def made(self, trace: str) -> bool:
        return True

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        assert isinstance(target, CudaTarget)
        sketch = open_sketch(module, open_trace)
        return replace(sketch, limits=limits_of(module, open_trace, sketch, target))


class CudaSpace:
    families = (CudaKernels(), CudaTensorCores(), CudaTilings())

    def plainly_scheduled(self, module: Any, target: Target) -> Any:
        """`module` with every block's results shared out to threads, its reduction inside.

        A block of a form that this does not fit is run by one thread.
        """
        assert isinstance(target, CudaTarget)
        schedule = tvm.s_tir.Schedule(module, debug_mask="none", error_render_level="none")
        root = schedule.get_sblock("root", func_name="main")
        for block in schedule.get_child_blocks(root):
            # What was applied before a primitive is refused stays: each keeps the meaning.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                _share_out(schedule, block, plain_threads(target))
        return schedule.mod


def _within_limit(rule: Any, target: CudaTarget) -> Any:
    """MetaSchedule's rule for sums by several threads asks no target how many a block may have."""
    if not isinstance(rule, ms.schedule_rule.CrossThreadReduction):
        return rule
    return ms.schedule_rule.CrossThreadReduction(
        [threads for threads in _SUMMING_THREADS if threads <= target.threads_per_block]
    )


def _share_out(schedule: Any, block: Any, threads: int) -> None:
    if _starts_threads(schedule.get(block).body):
        return
    kinds = [int(v.iter_type) for v in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    if len(loops) != len(kinds) or not set(kinds) <= {SPATIAL, REDUCTION}:
        spatial, reductions = [], loops
    else:
        spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL]
        reductions = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCTION]
    if not spatial:
        outermost = loops[0] if loops else block
        spatial = [schedule.add_unit_loop(outermost)]
    elif reductions:
        schedule.reorder(*spatial, *reductions)
    outer, inner = schedule.split(schedule.fuse(*spatial), [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")


def _as_told(schedules: Callable[[Any], list[Any]]) -> Any:
    return ms.space_generator.ScheduleFn(schedules, sch_rules=[], postprocs=[], mutator_probs={})


def _is_kernels(schedule: Any) -> bool:
    """Whether a task is written as kernels."""
    root = schedule.get_sblock("root", func_name="main")
    blocks = map(schedule.get, schedule.get_child_blocks(root))
    return any(_starts_threads(block.body) for block in blocks)


def _starts_threads(statement: Any) -> bool:
    """Whether the body of a block consists of kernels."""
    if isinstance(statement, tvm.tirx.AttrStmt) and statement.attr_key == "thread_extent":
        return True
    if isinstance(statement, tvm.tirx.For) and statement.thread_binding is not None:
        return True
    parts = getattr(statement, "seq", [getattr(statement, "body", None)])
    return any(_starts_threads(part) for part in parts if part is not None)
