"""The schedule that a trace makes of a program.

A trace of the search holds its decisions and no more. What MetaSchedule's postprocessing adds
(parallel and vector loops, packed weights) follows from these and the target, and is worked out
here, where a program is built. A trace that brings it along, as MetaSchedule's own records do, is
taken as it is.
"""

from __future__ import annotations

import json
from typing import Any

from tunefleet.compiler.code.brackets import bracketed
from tunefleet.compiler.code.fetching import fitting, synchronous_where_apart
from tunefleet.compiler.code.unrolling import keep_rolled, leave_to_nvcc
from tunefleet.compiler.graph.forms import form_of
from tunefleet.compiler.space.intrinsics import make_all_known
from tunefleet.compiler.space.spaces import postprocessors
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import POSTPROCESSED, load_program, trace_text
from tunefleet.core.ids import canonical_json
from tunefleet.core.target import CudaTarget, Target
from tunefleet.errors import ForeignError

tvm = load_tvm()


def replay(module: Any, target: Target, trace: str) -> Any:
    """The schedule of a module whose only function is `main`, in the form that the trace is of,
    ready to be built.

    Raises whatever TVM raises when the trace does not fit, ForeignError when postprocessing
    rejects the program.
    """
    parsed = json.loads(trace)
    # Kept while the schedule works: what nobody else holds TVM changes in place, and with it blocks
    # that the task's own program shares.
    form = form_of(module, trace)
    schedule = tvm.s_tir.Schedule(form)
    make_all_known(parsed[0])
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(parsed, schedule)
    if any(instruction[0] == POSTPROCESSED for instruction in parsed[0]):
        if isinstance(target, CudaTarget):
            synchronous_where_apart(schedule)
    else:
        if isinstance(target, CudaTarget):
            schedule = _fetching_well(form, schedule, parsed)
        schedule.enter_postproc()
        for postprocessor in postprocessors(target, trace):
            if not postprocessor.apply(schedule):
                raise ForeignError("MetaSchedule's postprocessing rejects the program")
        # The first is a matter of LLVM's, the other of TVM's code for GPUs.
        (leave_to_nvcc if isinstance(target, CudaTarget) else keep_rolled)(schedule)
    return schedule


def _fetching_well(form: Any, schedule: Any, parsed: list[Any]) -> Any:
    """What a trace has made of a program, with vectors that its fetches can have."""
    decisions = fitting(parsed, schedule)
    if decisions is None:
        return schedule
    again = tvm.s_tir.Schedule(form)
    tvm.s_tir.schedule.Trace.apply_json_to_schedule([parsed[0], decisions], again)
    return again


def scheduled(module: Any, target: Target, trace: str) -> Any:
    """`module` as the trace schedules it, ready to be compiled. Raises as `replay` does."""
    return bracketed(replay(module, target, trace).mod)


def completed(program: str, target: Target, trace: str) -> str:
    """`trace` with its postprocessing, for those who apply it with TVM alone; about 15 ms.

    It keeps its own decisions, by which it is known, where fetches have narrower vectors: those are
    in the steps of its postprocessing."""
    instructions, made = json.loads(trace_text(replay(load_program(program), target, trace).trace))
    own = {int(position): decision for position, decision in json.loads(trace)[1]}
    return canonical_json(
        [instructions, [[position, own.get(position, decision)] for position, decision in made]]
    )
