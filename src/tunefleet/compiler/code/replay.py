"""Replays traces on programs.

A trace of the search contains decisions only. MetaSchedule's postprocessing (parallel and vector
loops, packed weights) follows from them and the target, and is applied here, when a program is
built. A trace that includes postprocessing, as in MetaSchedule's own records, is used unchanged.
"""

from __future__ import annotations

import json
from typing import Any

import tvm_ffi

from tunefleet.compiler.code.brackets import bracketed
from tunefleet.compiler.code.fetching import fitting, synchronous_where_apart
from tunefleet.compiler.code.unrolling import keep_rolled, leave_to_nvcc
from tunefleet.compiler.code.weight_orders import UnknownOrderError, packings_of
from tunefleet.compiler.space.intrinsics import make_all_known
from tunefleet.compiler.space.padded_rows import form_of
from tunefleet.compiler.space.spaces import postprocessors
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import POSTPROCESSED, load_program, trace_text
from tunefleet.core.ids import canonical_json
from tunefleet.core.target import CudaTarget, Target
from tunefleet.errors import ForeignError

tvm = load_tvm()

#: The instruction that names a block.
_GET = "GetSBlock"
#: Packs weights in the order of the loops that read them.
_PACK = tvm.s_tir.meta_schedule.postproc.RewriteLayout


def replay(module: Any, target: Target, trace: str, *, packs: bool = True) -> Any:
    """The schedule of a module with the single function `main`, in the trace's form, ready to be
    built. Weights are packed if `packs`, and where some order of their axes is that of the loops
    that read them.

    Raises TVM's own errors if the trace does not fit, and ForeignError if postprocessing rejects
    the program.
    """
    parsed = json.loads(trace)
    # Keep a reference while scheduling: TVM modifies unreferenced objects in place, including
    # blocks shared with the task's own program.
    form = form_of(module, trace)
    schedule = tvm.s_tir.Schedule(form)
    parsed[0] = with_names_of(form, parsed[0])
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
            if not packs and isinstance(postprocessor, _PACK):
                continue
            if not postprocessor.apply(schedule):
                raise ForeignError("MetaSchedule's postprocessing rejects the program")
        if packs and not _packs_by_axes(schedule):
            return replay(module, target, trace, packs=False)
        # The first concerns LLVM, the other TVM's code for GPUs.
        (leave_to_nvcc if isinstance(target, CudaTarget) else keep_rolled)(schedule)
    return schedule


def _packs_by_axes(schedule: Any) -> bool:
    """Whether weights can be packed when a network is compiled."""
    try:
        packings_of(schedule.mod["main"])
    except UnknownOrderError:
        return False
    return True


def with_names_of(module: Any, instructions: list[Any]) -> list[Any]:
    """The instructions of a trace with the names that blocks have in a module's program.

    A name such as `lv486_red` has the number of a variable of its network: programs of two networks
    are one task and differ in it. A name that is not there means the block that the trace does not
    name and whose name ends alike, the first such; what is made of a block has the block's name
    first.
    """
    named = {attributes[0] for kind, _, attributes, _ in instructions if kind == _GET}
    there: list[str] = []
    rules = [(tvm.s_tir.SBlock, lambda block: there.append(str(block.name_hint)))]
    tvm_ffi.structural_walk(module["main"].body, rules)
    left = {name: _ending(name) for name in there if name not in named and _ending(name)}
    renamed: dict[str, str] = {}
    changed = []
    for kind, inputs, attributes, outputs in instructions:
        if kind == _GET and attributes[0] not in there:
            attributes = [_own_name(attributes[0], left, renamed), *attributes[1:]]
        changed.append([kind, inputs, attributes, outputs])
    return changed


def _own_name(name: str, left: dict[str, str], renamed: dict[str, str]) -> str:
    for other, own in renamed.items():
        if name == other or name.startswith(f"{other}_"):
            return own + name.removeprefix(other)
    match = next((own for own, ending in left.items() if ending == _ending(name)), None)
    if match is None:
        return name  # made by the trace itself
    del left[match]
    renamed[name] = match
    return match


def _ending(name: str) -> str:
    """Of the name of a block, what follows that of its variable."""
    return name.partition("_")[2]


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
