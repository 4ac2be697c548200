"""Arrays and tensors of TVM's runtime, in one memory wherever kernels can read it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.runtime import load_runtime
from tunefleet.artifacts.weights import ALIGNMENT
from tunefleet.errors import SetupError

Array = NDArray[Any]


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array without values that begins where kernels read whole vectors."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


def tensor_of(array: Array) -> Any:
    """A tensor with the values of an array, in memory of its own."""
    if is_native(array.dtype):
        copied = aligned(array.shape, array.dtype)
        np.copyto(copied, array)
        return load_runtime().from_dlpack(copied)
    # Types of ml_dtypes, which NumPy does not hand over.
    runtime = load_runtime()
    allocate = runtime.get_global_func("runtime.TVMTensorAllocWithScope")
    tensor = allocate(runtime.Shape(array.shape), array.dtype.name, runtime.device("cpu"), None)
    contiguous = np.ascontiguousarray(array)
    ctypes.memmove(tensor.data_ptr(), contiguous.ctypes.data, contiguous.nbytes)
    return tensor


def array_of(tensor: Any) -> Array:
    """The values of a tensor on the CPU, in its own memory where NumPy has its type."""
    dtype = numpy_type(str(tensor.dtype))
    if is_native(dtype):
        return np.from_dlpack(tensor)
    size = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    values = (ctypes.c_uint8 * size).from_address(tensor.data_ptr())
    return np.array(values).view(dtype).reshape(tuple(tensor.shape))


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
