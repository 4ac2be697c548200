"""The processor of this machine: its name, instructions, cores and caches."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.layout import LayoutChoice, choose_layout, parse_cores
from tunefleet.errors import InputError

#: LLVM's feature names that decide which instructions are emitted, with the kernel's name for
#: them in /proc/cpuinfo. Others (tuning hints, system instructions) cannot crash a kernel.
X86_FEATURES = {
    "sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx": "avx", "avx2": "avx2", "fma": "fma",
    "f16c": "f16c", "bmi": "bmi1", "bmi2": "bmi2", "avxvnni": "avx_vnni",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd",
    "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "amx-tile": "amx_tile",
    "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "gfni": "gfni", "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq", "sha": "sha_ni",
}  # fmt: skip


_SYSTEM_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """A processor. `siblings` are the cores this process may use, each with its physical core."""

    name: str
    flags: frozenset[str]
    siblings: tuple[tuple[int, int], ...]
    caches: tuple[tuple[str, int], ...]
    memory_gib: int

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(core for core, _ in self.siblings)

    @property
    def physical_cores(self) -> int:
        return len({physical for _, physical in self.siblings})


@lru_cache(maxsize=1)
def cpu_info() -> CpuInfo:
    """The processor of this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.M)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return CpuInfo(
        name=name.group(1).strip() if name else os.uname().machine,
        flags=frozenset(flags.group(1).split()) if flags else frozenset(),
        siblings=tuple(physical_cores(os.sched_getaffinity(0)).items()),
        caches=_caches(),
        memory_gib=round(pages / 2**30),
    )


def physical_cores(cores: Iterable[int], system: Path = _SYSTEM_CPUS) -> dict[int, int]:
    """The physical core of each core, named by its first hyperthread.

    A core whose siblings the kernel does not tell is a physical core by itself.
    """
    found = {}
    for core in sorted(cores):
        try:
            listed = (system / f"cpu{core}" / "topology" / "thread_siblings_list").read_text()
            found[core] = min(parse_cores(listed))
        except (OSError, InputError):
            found[core] = core
    return found


def machine_layout(
    threads: int | None = None,
    host_cores: Collection[int] | None = None,
    device_cores: Collection[int] | None = None,
) -> LayoutChoice:
    """Where hosts and the device of this machine run; see `choose_layout`."""
    cpu = cpu_info()
    return choose_layout(cpu.cores, dict(cpu.siblings), threads, host_cores, device_cores)


def _caches() -> tuple[tuple[str, int], ...]:
    found = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (index / "type").read_text().strip()
            level = (index / "level").read_text().strip()
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction" and size.endswith("K"):
            found[f"L{level}"] = int(size[:-1]) * 1024
    return tuple(sorted(found.items()))


def device_identity(key: str = "") -> DeviceIdentity:
    """The identity that this machine's records carry; `key` is the user's name for it."""
    cpu = cpu_info()
    known = set(X86_FEATURES.values())
    return DeviceIdentity(
        kind="cpu",
        name=cpu.name,
        isa=tuple(sorted(cpu.flags & known)) or (os.uname().machine,),
        cores=len(cpu.cores),
        caches=cpu.caches,
        memory_gib=cpu.memory_gib,
        key=key,
    )
