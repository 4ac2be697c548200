"""Tensor intrinsics as plug-ins: which there are, and which code for a target may use."""

from __future__ import annotations

from functools import lru_cache

from tunefleet.compiler.space.intrinsics import x86
from tunefleet.compiler.space.intrinsics._base import PREFIX, Intrinsic
from tunefleet.compiler.toolchain.host import codegen_features, machine_of
from tunefleet.core.target import CpuTarget

__all__ = ["INTRINSICS", "PREFIX", "Intrinsic", "intrinsic_named", "intrinsics_of", "known"]

INTRINSICS: tuple[Intrinsic, ...] = (*x86.INTRINSICS,)
_BY_NAME = {intrinsic.trace_name: intrinsic for intrinsic in INTRINSICS}


@lru_cache(maxsize=64)
def intrinsics_of(target: CpuTarget) -> tuple[Intrinsic, ...]:
    """The intrinsics that code for a target may use, wider ones first."""
    machine, features = machine_of(target), frozenset(codegen_features(target))
    return tuple(
        intrinsic
        for intrinsic in INTRINSICS
        if intrinsic.machine == machine and intrinsic.features <= features
    )


def intrinsic_named(trace_name: str) -> Intrinsic:
    """The intrinsic that a trace calls so. Raises KeyError for another's."""
    return _BY_NAME[trace_name]


@lru_cache(maxsize=1)
def known() -> None:
    """Make all intrinsics known to TVM, once a process: a schedule names the ones that it uses."""
    for intrinsic in INTRINSICS:
        intrinsic.register()
