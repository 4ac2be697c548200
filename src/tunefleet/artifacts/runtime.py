"""TVM's runtime without its compiler: 3 MB instead of 260, loaded in a tenth of a second."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tunefleet.errors import SetupError
from tunefleet.system.packages import require

TVM_VERSION = "0.27.0.post1"
FFI_VERSION = "0.1.14.post1"
INSTALL_TVM = f"pip install apache-tvm=={TVM_VERSION}"

_LIBRARY = "libtvm_runtime.so"
#: Where TVM reads how many threads a thread's pool has when its first kernel runs.
_THREADS_VARIABLE = "TVM_NUM_THREADS"
#: How often a thread of the pool looks for work before it sleeps: for about 15 ms. With TVM's
#: 300,000 it takes a core from whatever runs in the 150 ms after a call, another engine as well.
_SPINS = "30000"


def installed_versions() -> dict[str, str]:
    """Distribution name -> version ("" when missing), without importing anything."""
    versions = {}
    for name in ("tunefleet", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost", "torch", "onnx"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    return versions


def check_versions() -> None:
    """Raises SetupError when TVM is missing or when its ffi has the wrong version."""
    versions = installed_versions()
    if not versions["apache-tvm"]:
        raise SetupError("TVM is not installed", cure=INSTALL_TVM)
    if versions["apache-tvm-ffi"] != FFI_VERSION:
        raise SetupError(
            f"apache-tvm-ffi {versions['apache-tvm-ffi']} crashes with this TVM",
            cure=f"pip install apache-tvm-ffi=={FFI_VERSION}",
        )


@contextmanager
def without_torch() -> Iterator[None]:
    """Keep TVM's ffi from importing torch, which takes longer than all of TVM.

    It does so for symbols that clash on Windows and to convert torch tensors, which nothing here
    hands to it. Who needs torch can still import it, before or after.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


@lru_cache(maxsize=1)
def load_runtime() -> Any:
    """The module tvm_ffi, with TVM's runtime loaded. Raises SetupError."""
    check_versions()
    with without_torch():
        require("tunefleet", ("tvm_ffi",), INSTALL_TVM)
        import tvm_ffi
    spec = importlib.util.find_spec("tvm")
    if spec is None or spec.origin is None:
        raise SetupError("TVM is not installed", cure=INSTALL_TVM)
    library = Path(spec.origin).parent / "lib" / _LIBRARY
    # The same handle where the whole of TVM is loaded already.
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return tvm_ffi


class _Configured(threading.local):
    threads = 0
    #: Whether the workers of this thread's pool stayed in the process that this one was forked of.
    lost = False


_configured = _Configured()
#: The most threads that were asked for in this process.
_most = 0
#: In a forked process, the thread that runs kernels for the one that it was forked by.
_beside: ThreadPoolExecutor | None = None

P = ParamSpec("P")
T = TypeVar("T")


def set_threads(threads: int) -> None:
    """Let kernels that the calling thread runs use `threads` threads.

    Call it before its first kernel: its pool has as many threads as the most that were asked for by
    then. TVM's default is half the logical CPUs, so a program tuned for two cores would be measured
    and deployed on one.
    """
    global _most
    if _configured.threads == threads:
        return
    _most = max(_most, threads)
    os.environ[_THREADS_VARIABLE] = str(_most)
    # TVM would bind the calling thread to one core: with one thread every worker to core 0.
    os.environ["TVM_BIND_THREADS"] = "0"
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", _SPINS)
    load_runtime().get_global_func("runtime.config_threadpool")(1, threads)
    _configured.threads = threads


def with_pool(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what runs kernels: in this thread, unless they would wait there for ever.

    A fork takes no threads along but the one that forks, whose pool then waits for workers that are
    not there. Kernels of a new thread have a pool of their own.
    """
    global _beside
    if not _configured.lost:
        return function(*args, **kwargs)
    if _beside is None:
        _beside = ThreadPoolExecutor(1, "tunefleet")
    return _beside.submit(function, *args, **kwargs).result()


def _forked() -> None:
    global _beside
    _configured.lost = _configured.lost or (_configured.threads > 0 and _most > 1)
    _beside = None


os.register_at_fork(after_in_child=_forked)


def threads_here() -> int:
    """As many as the kernels of the calling thread use."""
    return _configured.threads or _most or 1
