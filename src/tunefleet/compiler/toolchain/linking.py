"""Links shared libraries for this machine and for others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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


def tools_of(target: Target) -> tuple[Path, ...]:
    """Where the programs lie that compiling for a target may start, for a sandbox: those of the
    system and of PATH, since compilers are wrapped by scripts, and nvcc's own."""
    named = ["/usr", "/bin", "/lib", "/lib64", "/nix/store", sys.prefix, sys.base_prefix]
    found = [Path(path) for path in named]
    user = Path.home()
    found += [Path(p) for p in os.get_exec_path() if os.path.isabs(p) and Path(p) != user]
    nvcc = find_nvcc() if isinstance(target, CudaTarget) else None
    if nvcc is not None:
        found.append(Path(nvcc).resolve().parents[1])
    return tuple(found)


def link(objects: Sequence[str], library: str, target: Target, *, name: str = "") -> None:
    """Link a shared library for the target's CPU. `name` is written into it: libraries of other
    names differ in content, if in nothing else.

    Raises SetupError if the linker is not installed, subprocess.CalledProcessError with its output
    if it fails.
    """
    foreign = is_foreign(target)
    linker = _cross_linker(machine_of(target)) if foreign else _linker()
    named = [f"-Wl,-soname,{name}"] if foreign else ["-soname", name]
    command = [linker, "-shared", "-o", library, *objects, *(named if name else [])]
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
