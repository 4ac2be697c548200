"""The search space of a task on a target: which schedules exist at all."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.target import Target

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule


#: Steps up to which loops are unrolled explicitly. MetaSchedule also tries 512: that triples the
#: build time, mostly LLVM's, and is among the best programs less often than its share
#: (docs/benchmarks.md, search space).
_UNROLL_STEPS = (0, 16, 64)


def search_space(target: Target) -> Any:
    """MetaSchedule's space of multi-level tilings for CPUs without tensor intrinsics.

    The rules are named here rather than taken from the target: for a processor with AVX-512 the
    default set asks for intrinsics that this TVM cannot use.
    """
    rules = [
        rule
        for rule in ms.schedule_rule.ScheduleRule.create("llvm")
        if not isinstance(rule, ms.schedule_rule.ParallelizeVectorizeUnroll)
    ]
    unroll = ms.schedule_rule.ParallelizeVectorizeUnroll(
        max_jobs_per_core=16,
        max_vectorize_extent=64,
        unroll_max_steps=list(_UNROLL_STEPS),
        unroll_explicit=True,
    )
    # Where the default set has it: before the compute locations are sampled.
    rules.insert(len(rules) - 1, unroll)
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=ms.postproc.Postproc.create("llvm"),
        mutator_probs=ms.mutator.Mutator.create("llvm"),
    )
