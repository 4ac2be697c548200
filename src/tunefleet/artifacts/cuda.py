"""TVM's CUDA runtime: a library beside its own, loaded where a network runs on a GPU."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunefleet.artifacts.runtime import INSTALL_TVM, load_runtime
from tunefleet.errors import SetupError

_LIBRARY = "libtvm_runtime_cuda.so"
#: What it is linked with besides the driver; Python packages have it below `nvidia`.
_CUDART = "libcudart.so.13"
_PACKAGED = ("cu13/lib", "cuda_runtime/lib")
INSTALL_CUDART = "pip install 'nvidia-cuda-runtime>=13,<14'"


@lru_cache(maxsize=1)
def load_cuda() -> Any:
    """The module tvm_ffi with TVM's runtime for GPUs. It takes a driver, and no CUDA toolkit.

    Raises SetupError with what is missing.
    """
    runtime = load_runtime()
    find_cudart()
    spec = importlib.util.find_spec("tvm")
    if spec is None or spec.origin is None:
        raise SetupError("TVM is not installed", cure=INSTALL_TVM)
    library = Path(spec.origin).parent / "lib" / _LIBRARY
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        cure = "install the GPU's driver" if "libcuda.so" in str(error) else INSTALL_CUDART
        raise SetupError(f"TVM's CUDA runtime cannot be loaded: {error}", cure=cure) from error
    return runtime


def find_cudart() -> None:
    """Load CUDA's runtime where no path of the loader has it but a Python package does: libraries
    that are linked with it then find it."""
    try:
        ctypes.CDLL(_CUDART)
        return
    except OSError:
        package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations if package else None) or ():
        for path in (Path(folder, below, _CUDART) for below in _PACKAGED):
            if path.is_file():
                ctypes.CDLL(str(path))
                return
