"""The search space of a task on a target: which schedules exist at all."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.target import Target

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule


def search_space(target: Target) -> Any:
    """MetaSchedule's space of multi-level tilings for CPUs without tensor intrinsics.

    The rules are named here rather than taken from the target: for a processor with AVX-512 the
    default set asks for intrinsics that this TVM cannot use.
    """
    return ms.space_generator.PostOrderApply(
        sch_rules=ms.schedule_rule.ScheduleRule.create("llvm"),
        postprocs=ms.postproc.Postproc.create("llvm"),
        mutator_probs=ms.mutator.Mutator.create("llvm"),
    )
