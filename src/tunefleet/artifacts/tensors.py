"""Arrays and tensors of TVM's runtime, in one memory wherever kernels can read it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.runtime import load_runtime
from tunefleet.errors import SetupError

Array = NDArray[Any]

#: Kernels read whole vectors.
ALIGNMENT = 64
#: DLPack's numbers of kinds of devices.
CPU, GPU = 1, 2


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array without values that begins where kernels read whole vectors."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def tensor_of(array: Array, gpu: int | None = None) -> Any:
    """A tensor with the values of an array, in memory of its own: the CPU's, or that of the GPU
    with this number."""
    if gpu is not None:
        return _gpu_tensor(array, gpu)
    copied = aligned(array.shape, array.dtype)
    np.copyto(copied, array)
    return from_array(copied)


def from_array(array: Array, alignment: int = 0) -> Any:
    """A tensor in the memory of an array, which nobody may write to from then on. Raises ValueError
    where that does not begin at a multiple of `alignment`."""
    runtime = load_runtime()
    given = array if is_native(array.dtype) else array.view(_bits(array.dtype))
    tensor = runtime.from_dlpack(given, require_alignment=alignment)
    return tensor if given is array else _viewed(tensor, array.dtype.name)


def _bits(dtype: np.dtype[Any]) -> str:
    """The type of as many bits, which NumPy hands over as it does not those of ml_dtypes."""
    return f"uint{8 * dtype.itemsize}"


def _viewed(tensor: Any, dtype: str) -> Any:
    """A tensor's memory as numbers of another type."""
    runtime = load_runtime()
    view = runtime.get_global_func("runtime.TVMTensorCreateView")
    return view(tensor, runtime.Shape(tensor.shape), dtype, 0)


def _gpu_tensor(array: Array, gpu: int) -> Any:
    runtime, contiguous = load_runtime(), np.ascontiguousarray(array)
    allocate = runtime.get_global_func("runtime.TVMTensorAllocWithScope")
    place = runtime.device("cuda", gpu)
    tensor = allocate(runtime.Shape(array.shape), array.dtype.name, place, None)
    if contiguous.nbytes:
        copy = runtime.get_global_func("runtime.TVMTensorCopyFromBytes")
        copy(tensor, contiguous.ctypes.data_as(ctypes.c_void_p), contiguous.nbytes)
    return tensor


def wait_for(gpu: int, stream: int = 0) -> None:
    """Until a GPU has done everything on a stream; 0 is the default one."""
    runtime = load_runtime()
    runtime.get_global_func("runtime.Device_StreamSync")(runtime.device("cuda", gpu), stream)


def on_cpu(tensor: Any) -> bool:
    """Whether a tensor is in the memory of the CPU."""
    return bool(tensor.device.dlpack_device_type() == CPU)


def array_of(tensor: Any) -> Array:
    """The values of a tensor: of one on the CPU in its own memory, of one on a GPU a copy, which
    waits for what writes it on the current stream."""
    dtype = numpy_type(str(tensor.dtype))
    if not on_cpu(tensor):
        copied = aligned(tuple(tensor.shape), dtype)
        if copied.nbytes:
            runtime = load_runtime()
            # TVM copies on the default stream, for which streams of torch's do not wait.
            wait_for(tensor.device.index, runtime.get_raw_stream(tensor.device))
            copy = runtime.get_global_func("runtime.TVMTensorCopyToBytes")
            copy(tensor, copied.ctypes.data_as(ctypes.c_void_p), copied.nbytes)
        return copied
    if is_native(dtype):
        return np.from_dlpack(tensor)
    bits: Array = np.from_dlpack(_viewed(tensor, _bits(dtype)))
    return bits.view(dtype)


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy itself has the type: it knows those of ml_dtypes by name once they are loaded,
    but hands none of them over."""
    return dtype.isbuiltin == 1


def numpy_type(name: str) -> np.dtype[Any]:
    """The type by its name; those that NumPy lacks come from ml_dtypes. Raises SetupError."""
    if name in np.sctypeDict:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise SetupError(
            f"NumPy has no numbers of type {name}", cure="pip install ml_dtypes"
        ) from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
