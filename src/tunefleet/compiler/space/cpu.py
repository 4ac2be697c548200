"""The search space of a task on a target: which schedules exist at all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tunefleet.compiler.graph.forms import forms
from tunefleet.compiler.space.reductions import ChannelsInside
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import to_tvm
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.target import Target

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule


#: Steps up to which loops are unrolled explicitly. MetaSchedule also tries 512: that triples the
#: build time, mostly LLVM's, and is among the best programs less often than its share
#: (docs/benchmarks.md, search space).
_UNROLL_STEPS = (0, 16, 64)


#: Elements of the longest loop that is vectorised: four registers of AVX-512.
_VECTOR_EXTENT = 64
_MIN_VECTOR_EXTENT = 8


def vector_extent(channels: int) -> int:
    """The longest vectorised loop for a task whose innermost output dimension is `channels`.

    MetaSchedule splits the fused loops of an elementwise block by the whole extent; where it does
    not divide the innermost dimension, reading what is broadcast along the others (a bias) becomes
    a gather, slow to compile (200 ms and more) and slow to run. So: the largest divisor.
    """
    divisors = (n for n in range(_VECTOR_EXTENT, _MIN_VECTOR_EXTENT - 1, -1) if channels % n == 0)
    return next(divisors, _VECTOR_EXTENT)


def search_space(target: Target, channels: int) -> Any:
    """MetaSchedule's space of multi-level tilings for CPUs without tensor intrinsics.

    `channels` is the extent of the task's innermost output dimension.

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
        max_vectorize_extent=vector_extent(channels),
        unroll_max_steps=list(_UNROLL_STEPS),
        unroll_explicit=True,
    )
    # Before the rules that take a reduction apart.
    inside = ChannelsInside(_VECTOR_EXTENT, max(_UNROLL_STEPS))
    rules.insert(_place(rules, ms.schedule_rule.AddRFactor), inside)
    # Where the default set has it: before the compute locations are sampled.
    rules.insert(_place(rules, ms.schedule_rule.RandomComputeLocation), unroll)
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=ms.postproc.Postproc.create("llvm"),
        mutator_probs=ms.mutator.Mutator.create("llvm"),
    )


def _place(rules: list[Any], kind: Any) -> int:
    return next(i for i, rule in enumerate(rules) if isinstance(rule, kind))


def tune_context(
    module: Any, target: Target, strategy: Any = None, *, seed: int = 1, threads: int = 1
) -> Any:
    """A form of a task with its search space, and the strategy that is to search it, if any."""
    return ms.TuneContext(
        module,
        target=to_tvm(target),
        space_generator=search_space(target, _innermost_extent(module)),
        search_strategy=strategy,
        num_threads=threads,
        rand_state=seed,
    )


def postprocessing(target: Target) -> Any:
    """A context for its postprocessors, which it owns and which are the same for every task."""
    return ms.TuneContext(
        tvm.IRModule(), target=to_tvm(target), space_generator=search_space(target, channels=1)
    )


@lru_cache(maxsize=512)
def design_space(program: str, target: Target) -> tuple[tuple[Any, Any], ...]:
    """The design spaces of a task: its forms (a module), each with schedules whose decisions are
    still open."""
    return tuple(
        (form, schedule)
        for form in forms(load_program(program))
        for schedule in tune_context(form, target).generate_design_space()
    )


def _innermost_extent(module: Any) -> int:
    """Of the task's output, which is its function's last argument; 1 for a scalar."""
    shape = ms.arg_info.ArgInfo.from_prim_func(module["main"])[-1].shape
    return int(shape[-1]) if len(shape) else 1
