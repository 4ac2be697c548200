"""The search space of CPUs: tensorised products, float32 products in register tiles, and
MetaSchedule's multi-level tilings."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.space.depthwise import CpuDepthwise
from tunefleet.compiler.space.plain import plainly_scheduled
from tunefleet.compiler.space.reductions import ChannelsInside
from tunefleet.compiler.space.register_tiles import CpuRegisterTiles
from tunefleet.compiler.space.sketching import open_sketch
from tunefleet.compiler.space.tensorised import CpuTensorised
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.target import Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule


#: Maximum steps of explicit unrolling. MetaSchedule also tries 512: that triples the build time,
#: mostly LLVM's, and is underrepresented among the best programs
#: (docs/benchmarks.md, search).
_UNROLL_STEPS = (0, 16, 64)


#: Maximum elements of a vectorised loop: four AVX-512 registers.
_VECTOR_EXTENT = 64
_MIN_VECTOR_EXTENT = 8


def vector_extent(channels: int) -> int:
    """The maximum vector extent for a task whose innermost output dimension is `channels`.

    MetaSchedule splits the fused loops of an elementwise block by the whole extent. If it does not
    divide the innermost dimension, reads of broadcast tensors (a bias) become gathers, slow to
    compile (200 ms and more) and slow to run. Therefore it is the largest divisor.
    """
    divisors = (n for n in range(_VECTOR_EXTENT, _MIN_VECTOR_EXTENT - 1, -1) if channels % n == 0)
    return next(divisors, _VECTOR_EXTENT)


class CpuTilings:
    """Tilings for vectors and caches."""

    def generator(self, target: Target, module: Any) -> Any:
        """MetaSchedule's rules and one of tunefleet.

        They are listed explicitly: for a processor with AVX-512 the default set requires intrinsics
        that this TVM cannot use.
        """
        rules = [
            rule
            for rule in ms.schedule_rule.ScheduleRule.create("llvm")
            if not isinstance(rule, ms.schedule_rule.ParallelizeVectorizeUnroll)
        ]
        unroll = ms.schedule_rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=16,
            max_vectorize_extent=vector_extent(_innermost_extent(module)),
            unroll_max_steps=list(_UNROLL_STEPS),
            unroll_explicit=True,
        )
        # Before the rules that decompose a reduction.
        inside = ChannelsInside(_VECTOR_EXTENT, max(_UNROLL_STEPS))
        rules.insert(_place(rules, ms.schedule_rule.AddRFactor), inside)
        # At its default position: before the compute locations are sampled.
        rules.insert(_place(rules, ms.schedule_rule.RandomComputeLocation), unroll)
        return ms.space_generator.PostOrderApply(
            sch_rules=rules,
            postprocs=ms.postproc.Postproc.create("llvm"),
            mutator_probs=ms.mutator.Mutator.create("llvm"),
        )

    def made(self, trace: str) -> bool:
        return True

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        return open_sketch(module, open_trace)


class CpuSpace:
    families = (CpuTensorised(), CpuRegisterTiles(), CpuDepthwise(), CpuTilings())

    def plainly_scheduled(self, module: Any, target: Target) -> Any:
        return plainly_scheduled(module)


def _place(rules: list[Any], kind: Any) -> int:
    return next(i for i, rule in enumerate(rules) if isinstance(rule, kind))


def _innermost_extent(module: Any) -> int:
    """The innermost extent of the task's output, the function's last argument; 1 for a scalar, and
    without a task."""
    if not module.functions:
        return 1
    shape = ms.arg_info.ArgInfo.from_prim_func(module["main"])[-1].shape
    return int(shape[-1]) if len(shape) else 1
