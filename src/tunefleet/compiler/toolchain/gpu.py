"""Whether a GPU of this machine runs code for a target."""

from __future__ import annotations

from tunefleet.core.target import CudaTarget
from tunefleet.errors import InputError
from tunefleet.hardware.gpu import check_runs_on, gpus


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
