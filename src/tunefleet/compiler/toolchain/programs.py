"""Serialised tasks and traces as TVM objects, with the caches of a warm worker."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.ids import canonical_json

tvm = load_tvm()

#: TVM's numbers for what an iterator of a block is (tvm.tirx.IterVar).
SPATIAL, REDUCTION = 0, 2
#: And for programs that take elementwise ones after them (`op_pattern`).
FUSABLE = 4
#: The instruction of a trace at which its postprocessing begins.
POSTPROCESSED = "EnterPostproc"
#: What a block says that the threads of a GPU fetch together: the numbers that each has at once.
FETCHED = "meta_schedule.cooperative_fetch"
#: What a loop says whose steps overlap: for each of its statements the stage that it is in, and
#: which of the stages copy by themselves.
STAGES, COPIED_STAGES = "software_pipeline_stage", "software_pipeline_async_stages"


@lru_cache(maxsize=256)
def load_program(program: str) -> Any:
    """The module of a task from its serialised form."""
    return tvm.ir.load_json(program)


def weights(program: str) -> tuple[tuple[int, ...], int]:
    """Which arguments of a task are the network's weights, and their bytes in all."""
    function = load_program(program)["main"]
    free = function.attrs.get("layout_free_buffers") if function.attrs else None
    indices = tuple(int(i) for i in free or ())
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(function)
    return indices, sum(nbytes(arguments[i].shape, str(arguments[i].dtype)) for i in indices)


def moved_bytes(program: str) -> int:
    """What a task moves at least: its inputs, weights and outputs, each once."""
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(
        load_program(program)["main"]
    )
    return sum(nbytes(argument.shape, str(argument.dtype)) for argument in arguments)


def nbytes(shape: Iterable[int], dtype: str) -> int:
    return math.prod(int(d) for d in shape) * (1 if dtype == "bool" else np.dtype(dtype).itemsize)


def trace_text(trace: Any) -> str:
    """A schedule trace as canonical JSON."""
    return canonical_json(plain(trace.as_json()))


def plain(value: Any) -> Any:
    """TVM containers as Python ones."""
    if isinstance(value, (str, bool, type(None))):
        return value
    if isinstance(value, (int, float)):
        return value
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [plain(v) for v in value]
    if hasattr(value, "value"):
        return value.value
    return str(value)


def database_entry(module: Any) -> tuple[str, str, list[Any]]:
    """A form of a task as MetaSchedule's database writes it: structural hash, module in base64, and
    what its records say of its arguments."""
    shash, encoded = tvm.s_tir.meta_schedule.database.Workload(module).as_json()
    arguments = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
    return str(shash), str(encoded), plain([argument.as_json() for argument in arguments])
