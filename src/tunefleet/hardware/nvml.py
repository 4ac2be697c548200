"""What disturbs a GPU, as NVIDIA's management library says: clocks that are held down, and other
processes. Without that library, or where it knows nothing of a GPU (a slice of one), nothing is
known."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import Any

from tunefleet.core.gpu import Gpu

_LIBRARY = "libnvidia-ml.so.1"
#: Why clocks are below what was asked for (nvmlClocksEventReasons). An idle GPU is none of them.
_REASONS = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "its temperature",
    0x40: "its temperature (hardware)",
    0x80: "the power supply",
}
#: As many processes as are looked at.
_PROCESSES = 64
_NOT_ENOUGH_ROOM = 7


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def held_down(gpu: Gpu) -> str:
    """What holds the GPU's clocks down now, such as `its temperature`; "" for nothing known."""
    reasons = ctypes.c_ulonglong()
    function = "nvmlDeviceGetCurrentClocksThrottleReasons"  # a name that all drivers have
    if not _asked(gpu, function, ctypes.byref(reasons)):
        return ""
    return ", ".join(text for bit, text in _REASONS.items() if reasons.value & bit)


def others_on(gpu: Gpu) -> int:
    """How many processes besides this one have a context on the GPU; 0 where nothing is known."""
    count, processes = ctypes.c_uint(_PROCESSES), (_Process * _PROCESSES)()
    function = "nvmlDeviceGetComputeRunningProcesses_v3"
    if not _asked(gpu, function, ctypes.byref(count), processes):
        return 0
    return sum(processes[i].pid != os.getpid() for i in range(min(count.value, _PROCESSES)))


def _asked(gpu: Gpu, function: str, *answer: Any) -> bool:
    """Whether the library answered."""
    library = _library()
    if library is None or not hasattr(library, function):
        return False
    handle = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByUUID(gpu.uuid.encode(), ctypes.byref(handle)):
        return False
    return getattr(library, function)(handle, *answer) in (0, _NOT_ENOUGH_ROOM)


@lru_cache(maxsize=1)
def _library() -> Any | None:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return None if library.nvmlInit_v2() else library
