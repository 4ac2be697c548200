"""The processor of a machine: its name, instructions, cores and caches, read from the kernel's
files of this machine or of a remote one."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tunefleet.core.device import DeviceDescription
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.layout import (
    LayoutChoice,
    choose_layout,
    format_cores,
    joined,
    parse_cores,
)
from tunefleet.core.printing import printable
from tunefleet.errors import InputError
from tunefleet.hardware.arm import FEATURES as ARM_FEATURES
from tunefleet.hardware.arm import features_of_hwcaps, part_name
from tunefleet.hardware.cores import ReadFile, physical_cores, slower_cores
from tunefleet.system.cgroups import cpu_quota

#: LLVM's feature names that affect the emitted instructions, with the kernel's name for
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

#: Requests permission for AMX tiles (ARCH_REQ_XCOMP_PERM of XFEATURE_XTILEDATA), and queries
#: whether they are supported (ARCH_GET_XCOMP_SUPP).
TILES = "amx_tile"
_OF_TILES = frozenset({TILES, "amx_int8", "amx_bf16"})
_ARCH_PRCTL, _GET_SUPPORTED, _REQUEST, _TILE_DATA = 158, 0x1021, 0x1023, 18

_SYSTEM_CPUS = Path("/sys/devices/system/cpu")
_MOST_CACHES = 8
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts from a machine's kernel files. `cores` counts all cores, usable or not. Unknown values
    are "" for `name`, and 0 for `cores` and `memory_gib`."""

    name: str
    flags: frozenset[str]
    cores: int
    caches: tuple[tuple[str, int], ...]
    memory_gib: int


@dataclass(frozen=True, slots=True)
class CpuInfo:
    """The processor of this machine, and the share of this process. `siblings` maps the usable
    cores to their physical cores. `slower` are the cores of a slower kind. `quota` is the limit of
    CPU time in cores, None without a limit."""

    facts: MachineFacts
    siblings: tuple[tuple[int, int], ...]
    slower: frozenset[int] = frozenset()
    quota: float | None = None

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(core for core, _ in self.siblings)

    @property
    def granted(self) -> tuple[int, ...]:
        """The usable cores, at most as many as the quota: the kernel would throttle more, in the
        middle of a measurement. Distinct physical cores come first; slower cores are excluded."""
        if self.quota is None or self.quota >= len(self.siblings):
            return self.cores
        seen: dict[int, int] = {}
        turns = []
        for core, physical in self.siblings:
            turns.append((core in self.slower, seen.get(physical, 0), core))
            seen[physical] = seen.get(physical, 0) + 1
        return tuple(sorted(core for _, _, core in sorted(turns)[: max(1, int(self.quota))]))

    @property
    def physical_cores(self) -> int:
        """The number of granted physical cores without slower ones: the default threads."""
        physical = dict(self.siblings)
        fast = [core for core in self.granted if core not in self.slower]
        return len({physical[core] for core in fast or self.granted})


@lru_cache(maxsize=1)
def cpu_info() -> CpuInfo:
    """The processor of this machine."""
    machine = os.uname().machine
    facts = machine_facts(_read, machine)
    refused = _OF_TILES if facts.flags & _OF_TILES and not _gives_tiles() else frozenset()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    usable = os.sched_getaffinity(0)
    facts = replace(
        facts,
        name=facts.name or machine,
        flags=facts.flags - refused,
        cores=facts.cores or len(usable),
        memory_gib=facts.memory_gib or round(pages / 2**30),
    )
    siblings = tuple(physical_cores(usable).items())
    return CpuInfo(facts, siblings, slower_cores(_read) & usable, cpu_quota())


def _gives_tiles() -> bool:
    """Whether the kernel grants AMX tiles to a process (Linux on x86-64, arch_prctl); a sandbox may
    forbid the query."""
    supported = ctypes.c_uint64()
    answer = _arch_prctl(_GET_SUPPORTED, ctypes.byref(supported))
    return answer == 0 and bool(supported.value >> _TILE_DATA & 1)


def takes_tiles() -> bool:
    """Request AMX tiles for all threads of this process. The kernel refuses if a thread's signal
    stack is too small."""
    return _arch_prctl(_REQUEST, ctypes.c_uint64(_TILE_DATA)) == 0


def _arch_prctl(what: int, argument: Any) -> int:
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, what, argument))


def machine_facts(read: ReadFile, machine: str, hwcaps: tuple[int, int] = (0, 0)) -> MachineFacts:
    """The facts in a machine's kernel files.

    `machine` is its architecture. `hwcaps` are the two feature words of a process (AT_HWCAP,
    AT_HWCAP2), needed if /proc/cpuinfo belongs to another machine: on an emulated board it is that
    of the host.
    """
    text = read("/proc/cpuinfo")
    named = re.search(r"^(?:model name|Model|uarch)\s*:\s*(.+)$", text, re.M)
    flags = re.search(r"^(?:flags|Features|isa)\s*:\s*(.+)$", text, re.M)
    name, features = named and named[1].strip(), frozenset(flags[1].split() if flags else ())
    if machine == "aarch64":
        name = part_name(text) or name
        if any(hwcaps):
            features = features_of_hwcaps(*hwcaps)
            if not re.search(r"^CPU implementer", text, re.M):
                name = ""
    memory = re.search(r"^MemTotal:\s*([0-9]{1,15}) kB$", read("/proc/meminfo"), re.M)
    return MachineFacts(
        name or "",
        features,
        _online(read, text),
        _caches(read),
        round(int(memory[1]) / 2**20) if memory else 0,
    )


def identity_of(facts: MachineFacts, machine: str, key: str = "") -> DeviceIdentity:
    """The identity of a machine. It counts all cores; the layout decides which are used, with
    affinity and control groups. Raises ValueError without a name."""
    if not facts.name or not facts.cores:
        raise ValueError("its kernel reports neither a processor name nor cores")
    known = set(X86_FEATURES.values()) if machine == "x86_64" else set(ARM_FEATURES)
    return DeviceIdentity(
        kind="cpu",
        name=printable(" ".join(facts.name.split())[:_LONGEST_NAME]),
        isa=tuple(sorted(facts.flags & known)) or (machine,),
        cores=facts.cores,
        caches=facts.caches,
        memory_gib=facts.memory_gib,
        key=key,
    )


def machine_layout(
    threads: int | None = None,
    host_cores: Collection[int] | None = None,
    device_cores: Collection[int] | None = None,
    pairs: Iterable[tuple[int, int]] = (),
) -> LayoutChoice:
    """The layout of hosts and device on this machine, by default on granted cores; see
    `choose_layout`. `pairs` are cores that were measured to slow each other down: they are one
    unit. The default number of threads is as without them, since records are of that number."""
    cpu = cpu_info()
    named = host_cores is not None or device_cores is not None
    usable = cpu.cores if named else cpu.granted
    choose = partial(
        choose_layout,
        usable,
        host_cores=host_cores,
        device_cores=device_cores,
        slower=cpu.slower,
    )
    siblings = dict(cpu.siblings)
    units = joined(siblings, pairs)
    if threads is None:
        threads = choose(siblings).threads
    choice = choose(units, threads)
    notes = []
    if units != siblings:
        before, after = (len(set(each.values())) for each in (siblings, units))
        notes.append(f"{before} cores count as {after}: some were measured to slow each other down")
    if usable != cpu.cores:
        notes.append(
            f"a container limits the time of {len(cpu.cores)} cores to that of {cpu.quota:g}"
        )
    if cpu.slower and not named:
        notes.append(f"slower than others: {format_cores(cpu.slower)}")
    return replace(choice, reason="; ".join([choice.reason, *notes]))


def device_identity(key: str = "", cores: Collection[int] = ()) -> DeviceIdentity:
    """The device identity in this machine's records; `key` is the user's name for it, `cores` are
    the device cores if there are several kinds."""
    cpu = cpu_info()
    slow = len(cpu.slower.intersection(cores))
    kind = " (slower cores)" if slow == len(cores) else " (cores of several kinds)"
    facts = replace(cpu.facts, name=cpu.facts.name + kind * bool(slow))
    return identity_of(facts, os.uname().machine, key)


def describe_machine() -> DeviceDescription:
    """The description of this machine as a device."""
    return DeviceDescription(device_identity(), os.uname().machine, cpu_info().cores)


def usable_cores(read: ReadFile) -> tuple[int, ...]:
    """The cores that the reading process may use; () if unknown."""
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", read("/proc/self/status"), re.M)
    try:
        return parse_cores(allowed[1]) if allowed else ()
    except InputError:
        return ()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _online(read: ReadFile, cpuinfo: str) -> int:
    """The number of cores of a machine."""
    try:
        return len(parse_cores(read(f"{_SYSTEM_CPUS}/online").strip()))
    except InputError:
        return len(re.findall(r"^processor\s*:", cpuinfo, re.M))


def _caches(read: ReadFile) -> tuple[tuple[str, int], ...]:
    sizes = {}
    for index in range(_MOST_CACHES):
        folder = f"{_SYSTEM_CPUS}/cpu0/cache/index{index}"
        kind, level, size = (read(f"{folder}/{f}").strip() for f in ("type", "level", "size"))
        if not kind:
            break
        if kind != "Instruction" and size.endswith("K"):
            sizes[f"L{level}"] = int(size[:-1]) * 1024
    return tuple(sorted(sizes.items()))
