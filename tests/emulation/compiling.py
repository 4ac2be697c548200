"""Compiles the emulation: what kernels are linked with, and the driver that TVM's CUDA runtime
loads. It needs nothing but the standard library: the emulated nvcc imports it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SOURCES = Path(__file__).parent / "cuda"
_HEADERS = ("fragments.h", "copies.h")
_ENGINE, _DRIVER, _RUNTIME = "libemulated.so", "libcuda.so.1", "libcudart.so.13"
_MANAGEMENT = "libnvidia-ml.so.1"
_HEADER = "emulated.h"
_ALL = ["-std=c++17", "-fPIC", "-w"]
#: Programs are compiled more often than they run for long.
_OF_KERNELS = [*_ALL, "-O1", "-fno-gnu-unique"]


def make_engine(folder: Path) -> None:
    """What kernels are compiled with: the headers in one, which g++ has read already since most
    programs are shorter than they, and the library with the rest."""
    header = folder / _HEADER
    header.write_text("".join(f'#include "{_SOURCES / name}"\n' for name in _HEADERS), "utf-8")
    _compile([*_OF_KERNELS, "-x", "c++-header", "-o", f"{header}.gch", str(header)])
    _library(folder, _ENGINE, "engine.cpp", [])


def make_driver(folder: Path) -> None:
    """The driver and its runtime, in a folder with `make_engine`'s."""
    _library(folder, _DRIVER, "driver.cpp", [_ENGINE])
    _library(folder, _MANAGEMENT, "nvml.cpp", [])
    versions = folder / "versions.map"
    versions.write_text(f"{_RUNTIME} {{ global: cuda*; local: *; }};\n", "utf-8")
    _library(
        folder, _RUNTIME, "runtime.cpp", [_DRIVER, _ENGINE], [f"-Wl,--version-script={versions}"]
    )


def compile_kernels(code: Path, library: Path, folder: Path) -> None:
    """A shared library of C++ that `rewriting` made. Raises subprocess.CalledProcessError with what
    g++ says."""
    given = ["-shared", "-include", str(folder / _HEADER), "-o", str(library), str(code)]
    _compile([*_OF_KERNELS, *given, *_linked(folder, [_ENGINE])])


def _library(
    folder: Path, name: str, source: str, below: Sequence[str], more: Sequence[str] = ()
) -> None:
    # It is there as a whole or not at all: another process may load it.
    with tempfile.TemporaryDirectory(dir=folder) as new:
        path = Path(new) / name
        given = ["-shared", f"-Wl,-soname,{name}", "-o", str(path), str(_SOURCES / source)]
        # The rest does not run for long.
        level = "-O2" if name == _ENGINE else "-O0"
        _compile([*_ALL, level, *given, *_linked(folder, below), "-ldl", "-pthread", *more])
        os.replace(path, folder / name)


def _linked(folder: Path, libraries: Sequence[str]) -> list[str]:
    named = [f"-l:{library}" for library in libraries]
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", *named]


def _compile(arguments: Sequence[str]) -> None:
    """Raises subprocess.CalledProcessError with what g++ says."""
    subprocess.run(["g++", *arguments], check=True, capture_output=True, text=True)


def digest() -> str:
    """Of all that is compiled, and of how."""
    files = [Path(__file__), *sorted(_SOURCES.iterdir())]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def has_compiler() -> bool:
    return shutil.which("g++") is not None
