"""Tensor intrinsics as plug-ins: which there are, and which code for a target may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from tunefleet.compiler.space.intrinsics import x86
from tunefleet.compiler.space.intrinsics._base import (
    BFLOAT16,
    PREFIX,
    Intrinsic,
    description,
    stored,
    widened,
)
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import codegen_features, machine_of
from tunefleet.core.target import CpuTarget

__all__ = [
    "BFLOAT16",
    "INTRINSICS",
    "PREFIX",
    "Intrinsic",
    "intrinsic_named",
    "intrinsics_of",
    "make_all_known",
    "make_known",
    "stored",
    "widened",
]

tvm = load_tvm()

INTRINSICS: tuple[Intrinsic, ...] = (*x86.INTRINSICS,)
_BY_NAME = {intrinsic.trace_name: intrinsic for intrinsic in INTRINSICS}


@lru_cache(maxsize=64)
def intrinsics_of(target: CpuTarget) -> tuple[Intrinsic, ...]:
    """The intrinsics that code for a target may use, better ones first: by instruction, then wider
    ones."""
    machine, features = machine_of(target), frozenset(codegen_features(target))
    return tuple(
        intrinsic
        for intrinsic in INTRINSICS
        if intrinsic.machine == machine and intrinsic.features <= features
    )


def intrinsic_named(trace_name: str) -> Intrinsic:
    """The intrinsic that a trace calls so. Raises KeyError for another's."""
    return _BY_NAME[trace_name]


@cache
def make_known(trace_name: str) -> None:
    """Register an intrinsic with TVM, once a process: schedules name those that they use. Names
    that are none of ours are another's to register."""
    if trace_name in _BY_NAME:
        intrinsic = _BY_NAME[trace_name]
        tvm.s_tir.TensorIntrin.register(
            trace_name, description(intrinsic), intrinsic.implementation(intrinsic), override=True
        )


def make_all_known(instructions: Iterable[Sequence[Any]]) -> None:
    """Register the intrinsics of a trace's instructions, [kind, inputs, attributes, outputs]."""
    for kind, _, attributes, *_ in instructions:
        if kind == "Tensorize":
            make_known(str(attributes[0]))
