"""Links shared libraries for this machine and for others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tunefleet.compiler.toolchain.host import is_foreign, machine_of
from tunefleet.compiler.toolchain.nvcc import find_nvcc
from tunefleet.core.target import CudaTarget, Target
from tunefleet.errors import SetupError

#: The name of a cross compiler, by `uname -m`, and its package.
_CROSS = {
    "aarch64": ("aarch64-linux-gnu", "gcc-aarch64-linux-gnu"),
    "armv7l": ("arm-linux-gnueabihf", "gcc-arm-linux-gnueabihf"),
    "riscv64": ("riscv64-linux-gnu", "gcc-riscv64-linux-gnu"),
    "x86_64": ("x86_64-linux-gnu", "gcc-x86-64-linux-gnu"),
}
#: Programs that compile and link, by the names that TVM, compilers and this module call; those of a
#: cross compiler begin with its name.
_TOOLS = ("g++", "gcc", "c++", "cc", "clang++", "clang", "ld", "ld.lld", "as", "objcopy")
#: What compilers are made of.
_TOOL_FOLDERS = ("/usr/lib/gcc", "/usr/lib/gcc-cross", "/usr/libexec/gcc", "/usr/lib/llvm*/bin")


def tools_of(target: Target) -> tuple[Path, ...]:
    """The programs that compiling for a target may start, for a sandbox."""
    names = [*_TOOLS, *filter(None, map(os.environ.get, ("CXX", "CC")))]
    if is_foreign(target):
        names += [f"{_CROSS[machine_of(target)][0]}-{name}" for name in _TOOLS]
    found = [Path(path) for path in map(shutil.which, names) if path is not None]
    found += [path for each in _TOOL_FOLDERS for path in Path("/").glob(each.lstrip("/"))]
    if isinstance(target, CudaTarget):
        found += _programs_of_nvcc()
    return tuple(found)


def _programs_of_nvcc() -> list[Path]:
    """nvcc starts its own parts by a shell, and looks for them from where it lies."""
    nvcc = find_nvcc()
    if nvcc is None:
        return []
    toolkit = Path(nvcc).resolve().parent.parent
    return [Path("/bin/sh"), toolkit / "bin", toolkit / "nvvm"]


def link(objects: Sequence[str], library: str, target: Target) -> None:
    """Link a shared library for the target's CPU.

    Raises SetupError if the linker is not installed, subprocess.CalledProcessError with its output
    if it fails.
    """
    linker = _cross_linker(machine_of(target)) if is_foreign(target) else _linker()
    command = [linker, "-shared", "-o", library, *objects]
    subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")


@lru_cache(maxsize=1)
def _linker() -> str:
    """The linker itself: gcc takes ten times as long and adds nothing to a kernel."""
    path = shutil.which("ld") or shutil.which("ld.lld")
    if path is None:
        raise SetupError("no linker (ld) on the PATH", cure="install binutils or gcc")
    return path


def _cross_linker(machine: str) -> str:
    """A cross compiler, which finds the libraries of its architecture."""
    return _cross_tool(machine, "gcc")


def objcopy(target: Target) -> str:
    """The path of objcopy for a target's CPU."""
    if is_foreign(target):
        return _cross_tool(machine_of(target), "objcopy")
    path = shutil.which("objcopy")
    if path is None:
        raise SetupError("no objcopy on the PATH", cure="install binutils")
    return path


def _cross_tool(machine: str, tool: str) -> str:
    name, package = _CROSS[machine]
    path = shutil.which(f"{name}-{tool}")
    if path is None:
        raise SetupError(
            f"code for {machine} needs {name}-{tool}, and it is not on the PATH",
            cure=f"install the package {package}",
        )
    return path
