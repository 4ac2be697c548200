"""Splits a prepared network into tasks: one per distinct program, with FLOPs and weight."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import tvm_ffi

from tunefleet.compiler.graph.forms import direct
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.ids import digest
from tunefleet.core.precision import INT8, precision_of
from tunefleet.core.target import Target
from tunefleet.core.task import Task, WeightedTask, rank

tvm = load_tvm()
relax = tvm.relax

_PRODUCTS = {"conv2d", "matmul"}


def extract_tasks(mod: Any, target: Target) -> list[WeightedTask]:
    """The tasks of a prepared module, ranked by their share of its FLOPs."""
    weights = call_counts(mod)
    tasks: dict[str, WeightedTask] = {}
    for gvar, function in mod.functions_items():
        name = str(gvar.name_hint)
        if not isinstance(function, tvm.tirx.PrimFunc) or name not in weights:
            continue
        task = _task(name, function, target)
        known = tasks.get(task.task_id)
        weight = weights[name] + (known.weight if known else 0)
        tasks[task.task_id] = WeightedTask(known.task if known else task, weight)
    return rank(list(tasks.values()))


def untraced(mod: Any, target: Target, traces: Collection[str]) -> tuple[str, ...]:
    """The names of the programs of a module whose tasks are not among `traces`."""
    called = call_counts(mod)
    return tuple(
        str(gvar.name_hint)
        for gvar, function in mod.functions_items()
        if str(gvar.name_hint) in called
        and isinstance(function, tvm.tirx.PrimFunc)
        and task_id_of(function, target) not in traces
    )


def multiplies_bytes(weighted: WeightedTask) -> bool:
    """Whether a task has a product of 8-bit integers in it: other steps may come first."""
    task = weighted.task
    return task.precision == INT8 and not _PRODUCTS.isdisjoint(task.name.split("+"))


def call_counts(mod: Any) -> dict[str, int]:
    """How often the functions of the network call each PrimFunc, by name."""
    counts: dict[str, int] = {}
    call_tir = tvm.ir.Op.get("relax.call_tir")
    for _, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                call = binding.value
                if isinstance(call, relax.Call) and call.op == call_tir:
                    name = str(call.args[0].name_hint)
                    counts[name] = counts.get(name, 0) + 1
    return counts


def normalized(function: Any) -> Any:
    """A PrimFunc as the module MetaSchedule tunes: one function named `main`."""
    function = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    return tvm.IRModule({"main": function})


def task_id_of(function: Any, target: Target) -> str:
    """Digest of the program's structural hash, in its direct form, and the target.

    TVM's hash ignores names of variables and is the same in every process.
    """
    return digest(
        [f"{tvm_ffi.structural_hash(normalized(direct(function))) & (2**64 - 1):016x}", str(target)]
    )


def _task(name: str, function: Any, target: Target) -> Task:
    module = normalized(function)
    infos = list(tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"]))
    shapes = [_shape_text(info) for info in infos]
    return Task(
        task_id=task_id_of(function, target),
        name=_readable(name),
        operator=_operator(_readable(name).split("+")),
        shapes=f"{' '.join(shapes[:-1])} -> {shapes[-1]}",
        flops=float(tvm.s_tir.analysis.estimate_tir_flops(normalized(direct(function)))),
        program=str(tvm.ir.save_json(module)),
        precision=precision_of([str(info.dtype) for info in infos[:-1]]),
    )


def _shape_text(info: Any) -> str:
    return "x".join(str(int(d)) for d in info.shape) or "scalar"


#: Operators whose own names hold an underscore or a digit.
_COMPOUND = (
    "conv2d",
    "conv3d",
    "deconv2d",
    "layer_norm",
    "group_norm",
    "max_pool2d",
    "avg_pool2d",
    "max_pool3d",
    "avg_pool3d",
    "log_softmax",
    "strided_slice",
)


#: What a fused program is called after, whatever stands before it.
_MAIN = frozenset({"conv2d", "conv3d", "deconv2d", "matmul"})


def _operator(parts: Sequence[str]) -> str:
    return next((part for part in parts if part in _MAIN), parts[0])


def _readable(name: str) -> str:
    """`fused_conv2d3_add2_maximum1` -> `conv2d+add+maximum` (TVM numbers its duplicates)."""
    operators = "|".join(sorted((re.escape(c) for c in _COMPOUND), key=len, reverse=True))
    pattern = rf"(?:tir_)?((?:adaptive_)?(?:{operators})|[a-z]+)"
    parts = [m.group(1) for m in re.finditer(pattern, name.removeprefix("fused_"))]
    return "+".join(parts) or name
