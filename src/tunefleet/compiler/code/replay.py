"""Replays traces on programs.

A trace of the search contains decisions only. MetaSchedule's postprocessing (parallel and vector
loops, packed weights) follows from them and the target, and is applied here, when a program is
built. A trace that includes postprocessing, as in MetaSchedule's own records, is used unchanged.
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
    """The schedule of a module with the single function `main`, in the trace's form, ready to be
    built.

    Raises TVM's own errors if the trace does not fit, and ForeignError if postprocessing rejects
    the program.
    """
    parsed = json.loads(trace)
    # Keep a reference while scheduling: TVM modifies unreferenced objects in place, including
    # blocks shared with the task's own program.
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
        # The first concerns LLVM, the other TVM's code for GPUs.
        (leave_to_nvcc if isinstance(target, CudaTarget) else keep_rolled)(schedule)
    return schedule


def _fetching_well(form: Any, schedule: Any, parsed: list[Any]) -> Any:
    """The result of a trace with valid vector widths of its fetches."""
    decisions = fitting(parsed, schedule)
    if decisions is None:
        return schedule
    again = tvm.s_tir.Schedule(form)
    tvm.s_tir.schedule.Trace.apply_json_to_schedule([parsed[0], decisions], again)
    return again


def scheduled(module: Any, target: Target, trace: str) -> Any:
    """`module` scheduled by the trace, ready to be compiled. Raises like `replay`."""
    return bracketed(replay(module, target, trace).mod)


def completed(program: str, target: Target, trace: str) -> str:
    """`trace` with its postprocessing, for use with TVM alone; takes about 15 ms.

    It keeps its own decisions, which identify it, even if fetches get narrower vectors: those are
    in the steps of its postprocessing."""
    instructions, made = json.loads(trace_text(replay(load_program(program), target, trace).trace))
    own = {int(position): decision for position, decision in json.loads(trace)[1]}
    return canonical_json(
        [instructions, [[position, own.get(position, decision)] for position, decision in made]]
    )
