"""What tests of the emulated driver call in processes of their own, without TVM."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

#: Bytes of what a kernel of `kernel_code` is given.
_BYTES = 256


def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _runtime() -> Any:
    return ctypes.CDLL("libcudart.so.13")


def before_initialization() -> list[int]:
    """Codes of the same call before and after cuInit."""
    driver, count = _driver(), ctypes.c_int()
    codes = [driver.cuDeviceGetCount(ctypes.byref(count))]
    return [*codes, driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count))]


def identifiers() -> list[str]:
    """UUIDs of all cards, in hexadecimal."""
    driver, count = _driver(), ctypes.c_int()
    driver.cuInit(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    uuids = [ctypes.create_string_buffer(16) for _ in range(count.value)]
    for number, uuid in enumerate(uuids):
        driver.cuDeviceGetUuid(uuid, number)
    return [uuid.raw.hex() for uuid in uuids]


def names() -> list[str]:
    """By the driver and by the properties of the runtime, whose first field is the name."""
    driver, properties = _driver(), ctypes.create_string_buffer(1008)
    driver.cuInit(0)
    name = ctypes.create_string_buffer(64)
    driver.cuDeviceGetName(name, 64, 0)
    _runtime().cudaGetDeviceProperties(properties, 0)
    return [name.value.decode(), properties.value.decode()]


def after_a_fork() -> int:
    """The code of a call in a child of a process that has used CUDA."""
    runtime, count = _runtime(), ctypes.c_int()
    assert runtime.cudaGetDeviceCount(ctypes.byref(count)) == 0
    child = os.fork()
    if not child:
        os._exit(runtime.cudaGetDeviceCount(ctypes.byref(count)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def synchronized_capture() -> list[int]:
    """Codes of waiting for a stream that records, and of the end of its recording."""
    runtime, stream, graph = _runtime(), ctypes.c_void_p(), ctypes.c_void_p()
    runtime.cudaStreamCreate(ctypes.byref(stream))
    runtime.cudaStreamBeginCapture(stream, 0)
    waited = runtime.cudaStreamSynchronize(stream)
    return [waited, runtime.cudaStreamEndCapture(stream, ctypes.byref(graph))]


def loading_code(arch: str) -> int:
    """Of a kernel for this architecture; "" for what is no code at all."""
    cubin = _cubin("x[threadIdx.x] = 1;", arch) if arch else b"no code" * 64
    return _load(cubin)[1]


def kernel_code(body: str, offset: int = 0) -> int:
    """The code of waiting for a kernel of 32 threads, which is given memory from an offset in it
    on."""
    module, code = _load(_cubin(body, "sm_80"))
    assert code == 0
    driver, runtime = _driver(), _runtime()
    function, memory = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"kernel") == 0
    runtime.cudaMalloc(ctypes.byref(memory), _BYTES)
    given = ctypes.c_void_p((memory.value or 0) + offset)
    config = _Config((1, 1, 1), (32, 1, 1), 0, None, None, 0)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(given))
    assert driver.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None) == 0
    return int(runtime.cudaDeviceSynchronize())


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


def _load(cubin: bytes) -> tuple[Any, int]:
    _runtime().cudaSetDevice(0)
    module = ctypes.c_void_p()
    return module, int(_driver().cuModuleLoadData(ctypes.byref(module), cubin))


def _cubin(body: str, arch: str) -> bytes:
    source = (
        'extern "C" __global__ void __launch_bounds__(32) kernel(float* __restrict__ x) {\n'
        f"  {body}\n}}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        code, made = Path(folder, "code.cu"), Path(folder, "code.cubin")
        code.write_text(source, encoding="utf-8")
        command = ["nvcc", "--cubin", f"-arch={arch}", "-o", str(made), str(code)]
        subprocess.run(command, check=True)
        return made.read_bytes()
