"""The NVIDIA GPU of this machine, if it has one, as TVM's runtime sees it."""

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
    """`sm_80`, say, of this machine's first GPU. Raises InputError where there is none."""
    device = _device()
    if device is None:
        raise InputError(
            "target 'cuda' means the GPU of this machine, and there is none here",
            cure="say which is meant: cuda/sm_80",
        )
    return f"sm_{str(device.compute_version).replace('.', '')}"


def driver_version() -> str:
    """The version of CUDA that this machine's driver has, `13.0` say; "" where there is none."""
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return ""
    major, minor = divmod(version.value, 1000)
    return "" if failed else f"{major}.{minor // 10}"


def check_present(target: CudaTarget) -> None:
    """Raise InputError when no GPU here runs code for `target`.

    Machine code runs on GPUs of the same major compute capability whose minor one is no lower.
    """
    device = _device()
    if device is None:
        raise InputError(
            f"target '{target}' needs an NVIDIA GPU, and there is none here",
            cure="use a device that has one, or --target native",
        )
    major, minor = (int(part) for part in str(device.compute_version).split("."))
    own = target.capability
    if major != own[0] or minor < own[1]:
        raise InputError(
            f"target '{target}' is not for this GPU, which is sm_{major}{minor}",
            cure=f"use --target cuda/sm_{major}{minor}",
        )
