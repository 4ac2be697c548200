"""Loads TVM quickly and quietly, with vectorised elementary functions."""

from __future__ import annotations

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
from threading import RLock
from typing import Any

from tunefleet.artifacts.runtime import (
    INSTALL_TVM,
    check_versions,
    installed_versions,
    without_torch,
)
from tunefleet.compiler.toolchain.elementary import use_vector_functions
from tunefleet.compiler.toolchain.reducers import use_infinities
from tunefleet.compiler.toolchain.stack import use_stack
from tunefleet.compiler.toolchain.unknowns import use_unknowns
from tunefleet.core.identity import ToolchainIdentity
from tunefleet.system.packages import require

#: Part of every record's identity: raise it when a change makes old latencies incomparable.
MEASURE_VERSION = 7

_INTRINSICS = "tvm.s_tir.tensor_intrin"
#: What is registered with TVM may be registered once.
_LOADING = RLock()


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
def _names_listed_once() -> Iterator[None]:
    """Lists TVM's functions once while it is imported: each of its 52 packages lists all 2,400
    again, an eighth of the import. What a package takes of them is in its libraries, which are
    loaded before the first."""
    from tvm_ffi import registry

    listed = registry.list_global_func_names
    registry.list_global_func_names = lru_cache(maxsize=1)(listed)
    try:
        yield
    finally:
        registry.list_global_func_names = listed


def load_tvm() -> Any:
    """The tvm module, imported once per process, also where several threads ask at once.

    Raises SetupError if it is missing, does not load, or has an ffi of the wrong version.
    """
    with _LOADING:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    check_versions()
    # TVM logs to stderr from C++; users of tunefleet only need errors.
    os.environ.setdefault("TVM_LOG_DEBUG", "")
    _stub_tensor_intrinsics()
    with warnings.catch_warnings(), without_torch():
        warnings.simplefilter("ignore")
        require("tunefleet", ("tvm_ffi",), INSTALL_TVM)
        with _names_listed_once():
            require("tunefleet", ("tvm.relax", "tvm.s_tir.meta_schedule"), INSTALL_TVM)
        import tvm
    use_vector_functions()
    use_infinities()
    use_unknowns()
    use_stack()
    for name in ("tvm", "tvm.s_tir.meta_schedule"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return tvm


@lru_cache(maxsize=1)
def toolchain_identity() -> ToolchainIdentity:
    """Of this process: what is installed is looked up once."""
    tvm = load_tvm()
    versions = installed_versions()
    return ToolchainIdentity(
        tunefleet=versions["tunefleet"],
        tvm=versions["apache-tvm"],
        llvm=str(tvm.target.codegen.llvm_version_major()),
        measure_version=MEASURE_VERSION,
    )
