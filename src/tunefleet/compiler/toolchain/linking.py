"""Linkers and C compilers of this machine, for its own processor and for others'."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from tunefleet.errors import InternalError, SetupError

#: Architectures by the number that an ELF file has of them (e_machine), as the kernel names them.
_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "arm", 0xF3: "riscv64", 0x15: "ppc64le"}
#: The Debian packages of those whose name is not theirs.
_PACKAGES = {
    "aarch64": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "riscv64": "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
}


def link(object_file: str, library: str) -> None:
    """Make a shared library of an object file, with the linker of the machine that it is for.

    Raises SetupError where there is none, subprocess.CalledProcessError with what it said.
    """
    command = [linker(machine_of(Path(object_file))), "-shared", "-o", library, object_file]
    subprocess.run(command, check=True, capture_output=True, text=True)


def machine_of(path: Path) -> str:
    """The architecture that an ELF file is for."""
    with path.open("rb") as file:
        header = file.read(20)
    number = int.from_bytes(header[18:20], "little")
    if header[:4] != b"\x7fELF" or number not in _MACHINES:
        raise InternalError(f"{path.name} is code of an unknown machine ({number:#x})")
    return _MACHINES[number]


@lru_cache(maxsize=8)
def linker(machine: str) -> str:
    """The linker itself: gcc around it takes ten times as long and adds nothing to a kernel."""
    own = ("ld", "ld.lld") if machine == os.uname().machine else ()
    path = _first((*own, f"{machine}-linux-gnu-ld", "ld.lld"))
    if path is None:
        raise _missing("linker", machine, "binutils or gcc")
    return path


@lru_cache(maxsize=8)
def c_compiler(machine: str) -> str:
    """A C compiler whose code runs on Linux on that machine."""
    own = ("gcc", "cc") if machine == os.uname().machine else ()
    path = _first((*own, f"{machine}-linux-gnu-gcc"))
    if path is None:
        raise _missing("C compiler", machine, "gcc")
    return path


def compile_c(source: Path, library: Path, machine: str) -> None:
    """Make a shared library of a C file. What it needs of libc it finds where it is loaded, in
    whatever version that is. Raises SetupError."""
    options = ["-shared", "-fPIC", "-O2", "-nostdlib", "-fno-stack-protector"]
    try:
        subprocess.run(
            [c_compiler(machine), *options, "-o", str(library), str(source)],
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line]
        raise SetupError(
            f"{c_compiler(machine)} cannot compile {source.name}: {(lines or ['no reason'])[0]}",
            cure=f"install the headers of its libc: {_packages(machine)}",
        ) from error


def _first(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def _packages(machine: str) -> str:
    return f"apt-get install {_PACKAGES.get(machine, f'gcc-{machine}-linux-gnu')}"


def _missing(what: str, machine: str, own: str) -> SetupError:
    if machine == os.uname().machine:
        return SetupError(f"no {what} on the PATH", cure=f"install {own}")
    return SetupError(f"no {what} for {machine} on the PATH", cure=_packages(machine))
