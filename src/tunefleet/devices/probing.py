"""Compiles `probe.c`, the part of a measurement that runs on the other machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from importlib import resources
from pathlib import Path

from tunefleet.errors import DeviceError, SetupError
from tunefleet.system.scratch import scratch_folder

#: Architectures by the number that an ELF file has of them (e_machine), as the kernel names them.
_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "arm", 0xF3: "riscv64", 0x15: "ppc64le"}
#: Debian's names, where they are not the kernel's.
_DEBIAN = {"aarch64": "arm64", "ppc64le": "ppc64el"}
#: What it needs of libc it finds where it is loaded, in whatever version that is.
_OPTIONS = ("-shared", "-fPIC", "-O2", "-nostdlib", "-fno-stack-protector")


def machine_of(program: bytes) -> str:
    """The architecture that an ELF file of that beginning is for. Raises DeviceError."""
    number = int.from_bytes(program[18:20], "little")
    if program[:4] != b"\x7fELF" or number not in _MACHINES:
        raise DeviceError(f"the server runs on a machine that is not known ({number:#x})")
    return _MACHINES[number]


@lru_cache(maxsize=8)
def probe_library(machine: str) -> Path:
    """The probe compiled for a machine, once per process. Raises SetupError."""
    compiler = _compiler(machine)
    library = Path(_folder().name) / f"probe-{machine}.so"
    with resources.as_file(resources.files("tunefleet.devices") / "probe.c") as source:
        command = [compiler, *_OPTIONS, "-o", str(library), str(source)]
        said = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if said.returncode:
        errors = [line for line in said.stderr.splitlines() if "error" in line]
        raise SetupError(
            f"{compiler} cannot compile what measures: {(errors or ['no reason'])[0]}",
            cure=f"install the headers of its libc: {_packages(machine)}",
        )
    return library


def _compiler(machine: str) -> str:
    names = ["gcc", "cc"] if machine == os.uname().machine else []
    paths = [path for name in (*names, f"{machine}-linux-gnu-gcc") if (path := shutil.which(name))]
    if not paths:
        raise SetupError(f"no C compiler for {machine} on the PATH", cure=_packages(machine))
    return paths[0]


def _packages(machine: str) -> str:
    if machine == os.uname().machine:
        return "apt-get install gcc libc6-dev"
    debian = _DEBIAN.get(machine, machine)
    return f"apt-get install gcc-{machine}-linux-gnu libc6-dev-{debian}-cross"


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    return scratch_folder("probe")
