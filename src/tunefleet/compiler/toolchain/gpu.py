"""The NVIDIA GPU of this machine according to TVM's runtime."""

from __future__ import annotations

import ctypes
from typing import Any

from tunefleet.compiler.toolchain.loading import load_tvm
from tunefleet.core.target import CudaTarget
from tunefleet.errors import InputError


def _device() -> Any | None:
    device = load_tvm().cuda(0)
    return device if device.exist else None


def architecture_here() -> str:
    """The architecture of this machine's first GPU, such as `sm_80`. Raises InputError without
    one."""
    device = _device()
    if device is None:
        raise InputError(
            "target 'cuda' means the GPU of this machine, which has none",
            cure="give an architecture: cuda/sm_80",
        )
    return f"sm_{str(device.compute_version).replace('.', '')}"


def driver_version() -> str:
    """The CUDA version of this machine's driver, such as `13.0`; "" without a driver."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return ""
    major, minor = divmod(version.value, 1000)
    return "" if failed else f"{major}.{minor // 10}"


def check_present(target: CudaTarget) -> None:
    """Raises InputError if no GPU of this machine runs code for `target`.

    Machine code runs on GPUs of the same major compute capability and an equal or higher minor one.
    """
    device = _device()
    if device is None:
        raise InputError(
            f"target '{target}' needs an NVIDIA GPU, and this machine has none",
            cure="use a device with one, or --target native",
        )
    major, minor = (int(part) for part in str(device.compute_version).split("."))
    own = target.capability
    if major != own[0] or minor < own[1]:
        raise InputError(
            f"target '{target}' is not for this GPU, which is sm_{major}{minor}",
            cure=f"use --target cuda/sm_{major}{minor}",
        )
