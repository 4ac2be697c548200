"""The NVIDIA GPUs of this machine, as their driver describes them: no CUDA toolkit is needed."""

from __future__ import annotations

import ctypes
import uuid
from functools import lru_cache
from typing import Any

from tunefleet.core.device import RegisteredDevice, gpu_of_this_machine
from tunefleet.core.gpu import CUDA, Gpu
from tunefleet.core.printing import printable
from tunefleet.core.target import CudaTarget
from tunefleet.errors import InputError, SetupError
from tunefleet.hardware.processor import describe_machine

_LIBRARY = "libcuda.so.1"
_NO_DEVICE = 100
_LONGEST_NAME = 256

#: Fields of `Gpu` by the driver's number of the attribute (CUdevice_attribute).
_ATTRIBUTES = {
    "threads_per_block": 1,
    "shared_memory_bytes": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "l2_bytes": 38,
}
_CAPABILITY = (75, 76)


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may use, in the driver's order; `CUDA_VISIBLE_DEVICES` decides
    which. Without a driver, or with none that it finds, there are none.

    Raises SetupError for a driver that does not start.
    """
    driver = _driver()
    if driver is None or _call(driver, "cuInit", 0, none=_NO_DEVICE):
        return ()
    count = ctypes.c_int()
    _call(driver, "cuDeviceGetCount", ctypes.byref(count))
    return tuple(_gpu(driver, number) for number in range(count.value))


def gpu_devices() -> tuple[RegisteredDevice, ...]:
    """The GPUs of this machine as devices: `cuda:0` and so on. Raises SetupError as `gpus`."""
    found = gpus()
    host = describe_machine() if found else None
    return tuple(gpu_of_this_machine(gpu, host) for gpu in found if host is not None)


def gpu_device(name: str) -> RegisteredDevice:
    """The GPU of this machine with an address (`cuda:0`), or a UUID of the driver
    (`cuda:GPU-8f1e...`, or the first letters of one). Raises InputError."""
    there = gpu_devices()
    wanted = name.removeprefix(f"{CUDA}:").lower()
    found = [device for device in there if _is_meant(wanted, device.description.gpu)]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(f"{device.name} ({device.description.identity.name})" for device in there)
    raise InputError(
        f"{name} is more than one GPU: {shown}"
        if found
        else f"this machine has no GPU {name}; there are: {shown or 'none'}",
        cure="`tunefleet doctor` says what of a GPU is found"
        if not there
        else "name one of them; CUDA_VISIBLE_DEVICES hides others",
    )


def _is_meant(wanted: str, gpu: Gpu | None) -> bool:
    if gpu is None or wanted.isdecimal():
        return gpu is not None and wanted == str(gpu.number)
    return bool(wanted) and gpu.uuid.lower().startswith(wanted)


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


def driver_version() -> str:
    """The CUDA version of this machine's driver, such as `13.0`; "" without a driver."""
    version, driver = ctypes.c_int(), _driver()
    if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)):
        return ""
    major, minor = divmod(version.value, 1000)
    return f"{major}.{minor // 10}"


@lru_cache(maxsize=1)
def _driver() -> Any | None:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


def _call(driver: Any, function: str, *arguments: Any, none: int = 0) -> int:
    """Call a function of the driver; what it returns is 0 or `none`. Raises SetupError."""
    returned = int(getattr(driver, function)(*arguments))
    if returned not in (0, none):
        said = ctypes.c_char_p()
        driver.cuGetErrorName(returned, ctypes.byref(said))
        name = said.value.decode("utf-8", "replace") if said.value else f"error {returned}"
        raise SetupError(
            f"the driver of the GPU does not work: {function} says {name}",
            cure="see whether `nvidia-smi` works; reload or update the driver",
        )
    return returned


def _gpu(driver: Any, number: int) -> Gpu:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_LONGEST_NAME)
    memory, identifier = ctypes.c_size_t(), (ctypes.c_uint8 * 16)()
    _call(driver, "cuDeviceGet", ctypes.byref(device), number)
    _call(driver, "cuDeviceGetName", name, _LONGEST_NAME, device)
    _call(driver, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    # The second version tells the slices of one card (MIG) apart; older drivers have the first.
    uuid_of = "cuDeviceGetUuid_v2" if hasattr(driver, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    _call(driver, uuid_of, identifier, device)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _call(driver, "cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    major, minor = map(attribute, _CAPABILITY)
    return Gpu(
        number=number,
        uuid=f"GPU-{uuid.UUID(bytes=bytes(identifier))}",
        name=printable(name.value.decode("utf-8", "replace")),
        capability=(major, minor),
        memory_bytes=memory.value,
        driver=driver_version(),
        **{field: attribute(number) for field, number in _ATTRIBUTES.items()},
    )
