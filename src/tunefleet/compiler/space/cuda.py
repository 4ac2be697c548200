"""The search space of NVIDIA GPUs: tensor-core products, MetaSchedule's tilings with shared memory,
cross-thread reductions, and blocks bound to threads. Tasks written as kernels have one program,
which is unchanged.

Sketches of a tiled block exist without and, on GPUs with asynchronous copies (sm_80 and later),
also with prefetching. All sampled decisions are perfect tiles or categories: unroll steps, the
width of a fetch, the threads of a reduction or of a block.
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

#: Numbers of threads in a cross-thread reduction, as in MetaSchedule for NVIDIA GPUs.
_SUMMING_THREADS = (4, 8, 16, 32, 64, 128, 256, 512)


class CudaKernels:
    """Programs that are already kernels (`graph/kernels.py`, TVM's own scatter): rules would bind
    their loops to threads again."""

    def generator(self, target: Target, module: Any) -> Any:
        return _as_told(lambda schedule: [schedule] if _is_kernels(schedule) else [])

    def made(self, trace: str) -> bool:
        """True for traces without a thread binding, which all other GPU programs have."""
        instructions, _ = json.loads(trace)
        return all(instruction[0] == POSTPROCESSED for instruction in instructions)

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        return open_sketch(module, open_trace)


class CudaTilings:
    """MetaSchedule's rules for CUDA cores."""

    def generator(self, target: Target, module: Any) -> Any:
        """MetaSchedule's rules without the one for operators' named rules: GPUs have none, and TVM
        warns about each missing one."""
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
        """`module` with the results of every block distributed over threads, reductions inside.

        Blocks of other forms run in one thread.
        """
        assert isinstance(target, CudaTarget)
        schedule = tvm.s_tir.Schedule(module, debug_mask="none", error_render_level="none")
        root = schedule.get_sblock("root", func_name="main")
        for block in schedule.get_child_blocks(root):
            # Primitives applied before a failing one remain: each preserves the semantics.
            with contextlib.suppress(tvm.s_tir.ScheduleError):
                _share_out(schedule, block, plain_threads(target))
        return schedule.mod


def _within_limit(rule: Any, target: CudaTarget) -> Any:
    """MetaSchedule's rule for cross-thread reductions, limited to the target's block size."""
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
    """Whether the body of a block launches threads."""
    if isinstance(statement, tvm.tirx.AttrStmt) and statement.attr_key == "thread_extent":
        return True
    if isinstance(statement, tvm.tirx.For) and statement.thread_binding is not None:
        return True
    parts = getattr(statement, "seq", [getattr(statement, "body", None)])
    return any(_starts_threads(part) for part in parts if part is not None)
