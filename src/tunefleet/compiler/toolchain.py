"""Loads TVM the way this project needs it: quickly, quietly, with its threads under control, and
with elementary functions in vector instructions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunefleet.compiler.elementary import use_vector_functions
from tunefleet.core.identity import ToolchainIdentity
from tunefleet.errors import SetupError

TVM_VERSION = "0.27.0.post1"
FFI_VERSION = "0.1.14.post1"

#: Part of every record's identity: raise it when a change makes old latencies incomparable.
MEASURE_VERSION = 3

_INTRINSICS = "tvm.s_tir.tensor_intrin"


def _stub_tensor_intrinsics() -> None:
    """Put an empty package in place of TVM's tensor intrinsics.

    The real one parses some 90 CUDA and ROCm intrinsics, 20-30 s in every process, and
    MetaSchedule imports it wherever a TuneContext is made. The stub keeps the package's path, so
    a single module of it (`tensor_intrin.x86`) can still be imported by name.
    """
    spec = importlib.util.find_spec("tvm")
    if spec is None or spec.origin is None or _INTRINSICS in sys.modules:
        return
    stub = types.ModuleType(_INTRINSICS)
    stub.__path__ = [str(Path(spec.origin).parent / "s_tir" / "tensor_intrin")]
    sys.modules[_INTRINSICS] = stub


@contextmanager
def _without_torch() -> Iterator[None]:
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
def load_tvm() -> Any:
    """The tvm module, imported once per process.

    Raises SetupError when it is missing or when its ffi has the wrong version.
    """
    versions = installed_versions()
    if not versions["apache-tvm"]:
        raise SetupError("TVM is not installed", cure=f"pip install apache-tvm=={TVM_VERSION}")
    if versions["apache-tvm-ffi"] != FFI_VERSION:
        raise SetupError(
            f"apache-tvm-ffi {versions['apache-tvm-ffi']} crashes with this TVM",
            cure=f"pip install apache-tvm-ffi=={FFI_VERSION}",
        )
    # TVM logs to stderr from C++; only errors are of interest to a user of tunefleet.
    os.environ.setdefault("TVM_LOG_DEBUG", "")
    _stub_tensor_intrinsics()
    with warnings.catch_warnings(), _without_torch():
        warnings.simplefilter("ignore")
        import tvm
        import tvm.relax
        import tvm.s_tir.meta_schedule
    use_vector_functions()
    for name in ("tvm", "tvm.s_tir.meta_schedule"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return tvm


def installed_versions() -> dict[str, str]:
    """Distribution name -> version ("" when missing), without importing anything."""
    found = {}
    for name in ("tunefleet", "apache-tvm", "apache-tvm-ffi", "numpy", "xgboost", "torch", "onnx"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def set_threads(threads: int) -> None:
    """Let kernels of this process use `threads` threads.

    Call it before the first kernel runs. TVM's default is half the logical CPUs, so a program
    tuned for two cores would be measured and deployed on one.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    # TVM would bind the calling thread to one core: with one thread every worker to core 0.
    os.environ["TVM_BIND_THREADS"] = "0"
    tvm = load_tvm()
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(1, threads)


def toolchain_identity() -> ToolchainIdentity:
    tvm = load_tvm()
    versions = installed_versions()
    return ToolchainIdentity(
        tunefleet=versions["tunefleet"],
        tvm=versions["apache-tvm"],
        llvm=str(tvm.target.codegen.llvm_version_major()),
        measure_version=MEASURE_VERSION,
    )
