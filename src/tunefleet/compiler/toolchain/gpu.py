"""Whether a GPU of this machine runs code for a target."""

from __future__ import annotations

from tunefleet.core.gpu import Gpu
from tunefleet.core.target import CudaTarget
from tunefleet.errors import InputError
from tunefleet.hardware.gpu import gpus


def architecture_here() -> str:
    """The architecture of this machine's first GPU, such as `sm_80`. Raises InputError without
    one."""
    found = gpus()
    if not found:
        raise InputError(
            "target 'cuda' means the GPU of this machine, which has none",
            cure="give an architecture: cuda/sm_80",
        )
    return found[0].arch


def check_present(target: CudaTarget) -> None:
    """Raises InputError if the first GPU of this machine does not run code for `target`."""
    found = gpus()
    if not found:
        raise InputError(
            f"target '{target}' needs an NVIDIA GPU, and this machine has none",
            cure="use a device with one, or --target native",
        )
    check_runs_on(target, found[0])


def check_runs_on(target: CudaTarget, gpu: Gpu) -> None:
    """Raises InputError if a GPU does not run code for `target`.

    Machine code runs on GPUs of the same major compute capability and an equal or higher minor one.
    """
    (major, minor), own = gpu.capability, target.capability
    if major != own[0] or minor < own[1]:
        raise InputError(
            f"target '{target}' is not for {gpu.name}, which is {gpu.arch}",
            cure=f"use --target cuda/{gpu.arch}",
        )
