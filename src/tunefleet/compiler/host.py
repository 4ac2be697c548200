"""This machine as a device and as a target, from what the processor really offers."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.identity import DeviceIdentity
from tunefleet.core.layout import LayoutChoice, choose_layout, parse_cores
from tunefleet.core.target import Target
from tunefleet.errors import InputError

#: LLVM's feature names that decide which instructions are emitted, with the kernel's name for
#: them in /proc/cpuinfo. Others (tuning hints, system instructions) cannot crash a kernel.
_X86_FEATURES = {
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
    known = set(_X86_FEATURES.values())
    return DeviceIdentity(
        kind="cpu",
        name=cpu.name,
        isa=tuple(sorted(cpu.flags & known)) or (os.uname().machine,),
        cores=len(cpu.cores),
        caches=cpu.caches,
        memory_gib=cpu.memory_gib,
        key=key,
    )


def native_target(threads: int | None = None) -> Target:
    """Code for this machine: LLVM's name of the processor less what it does not really have.

    LLVM names the processor by family and model. A hypervisor may hide instructions of it (a
    Zen 4 without AVX-512, say): code for the bare name then dies with an illegal instruction.
    """
    tvm = load_tvm()
    mcpu = str(tvm.target.codegen.llvm_get_system_cpu())
    hidden = _hidden_features(mcpu)
    return Target(
        mcpu=mcpu,
        mattr=tuple(f"-{feature}" for feature in hidden),
        threads=threads or cpu_info().physical_cores,
    )


def _hidden_features(mcpu: str) -> list[str]:
    if os.uname().machine != "x86_64":
        return []
    flags = cpu_info().flags
    hidden = [f for f in _codegen_features(Target(mcpu, 1)) if _X86_FEATURES[f] not in flags]
    if "avx512f" in hidden:  # takes every other AVX-512 feature with it
        hidden = [f for f in hidden if f == "avx512f" or not f.startswith("avx512")]
    return hidden


def _codegen_features(target: Target) -> list[str]:
    """Features of `_X86_FEATURES` that LLVM may use for this target."""
    codegen = load_tvm().target.codegen
    tvm_target = to_tvm(target)
    features = {str(name) for name in codegen.llvm_get_cpu_features(tvm_target)}
    removed = {a[1:] for a in target.mattr if a.startswith("-")}
    added = {a[1:] for a in target.mattr if a.startswith("+")}
    if "avx512f" in removed:
        removed |= {f for f in features if f.startswith("avx512")}
    return sorted(((features - removed) | added) & set(_X86_FEATURES))


def check_runs_here(target: Target) -> None:
    """Raise InputError when code for `target` would use instructions this machine lacks."""
    if os.uname().machine != "x86_64":
        return
    missing = [f for f in _codegen_features(target) if _X86_FEATURES[f] not in cpu_info().flags]
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"target '{target}' uses {shown}, which this processor does not have",
            cure="use --target native",
        )
    cores = len(cpu_info().cores)
    if target.threads > cores:
        raise InputError(
            f"target '{target}' wants {target.threads} threads, this process may use {cores} cores",
            cure=f"use --threads {cores}",
        )


def parse_target(text: str, threads: int | None = None) -> Target:
    """`native`, a processor name (`znver3`), or `llvm -mcpu=X -mattr=+a,-b -num-cores=N`.

    Raises InputError for an unknown option or processor.
    """
    if text in ("native", "cpu", ""):
        return native_target(threads)
    words = text.split()
    if words[0] == "llvm":
        words = words[1:]
    elif len(words) == 1 and not words[0].startswith("-"):
        words = [f"-mcpu={words[0]}"]
    options: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"-(mcpu|mattr|num-cores)=(\S+)", word)
        if match is None:
            raise InputError(
                f"target '{text}': cannot read '{word}'",
                cure="write native, a processor name, or 'llvm -mcpu=NAME [-mattr=+a,-b]'",
            )
        options[match.group(1)] = match.group(2)
    mcpu = options.get("mcpu", "")
    codegen = load_tvm().target.codegen
    host = load_tvm().target.Target({"kind": "llvm"})
    if mcpu not in {str(name) for name in codegen.llvm_get_cpu_archlist(host)}:
        raise InputError(
            f"target '{text}': LLVM knows no processor '{mcpu}'",
            cure="use --target native, or a name such as znver3 or skylake-avx512",
        )
    cores = options.get("num-cores")
    if cores is not None and not (cores.isdigit() and int(cores) > 0):
        raise InputError(
            f"target '{text}': -num-cores is '{cores}'", cure="give a positive whole number"
        )
    if mcpu == native_target().mcpu and "mattr" not in options:
        # The processor of this machine by name means this machine, less what is hidden of it.
        return native_target(threads or (int(cores) if cores else None))
    chosen = threads or (int(cores) if cores else cpu_info().physical_cores)
    return Target(
        mcpu=mcpu,
        mattr=tuple(a for a in options.get("mattr", "").split(",") if a),
        threads=chosen,
    )


def to_tvm(target: Target) -> Any:
    """The TVM target that compiles for `target`."""
    config: dict[str, Any] = {
        "kind": target.kind, "mcpu": target.mcpu, "num-cores": target.threads
    }  # fmt: skip
    if target.mattr:
        config["mattr"] = list(target.mattr)
    return load_tvm().target.Target(config)


def target_json(target: Target) -> dict[str, Any]:
    """The target as TVM writes it into its own logs."""
    from tunefleet.compiler.programs import plain

    found: dict[str, Any] = plain(to_tvm(target).export())
    return found
