"""How much memory this machine has for a network, and whether that is enough.

A network that does not fit is to be told so at its import, not after its search.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tunefleet.core.network import Footprint
from tunefleet.errors import JobError
from tunefleet.system.cgroups import groups_of

_GIB = 2**30

#: What the processes take whatever the network: the compiler, the frameworks, search and models.
_PROCESSES_BYTES = int(1.5 * _GIB)
#: Copies of the weights that are no pages of a file at the worst moment: the source framework holds
#: its own, packed, or the compiler packs those of the module that is delivered.
_COPIES = 2
#: The largest tensors that live at once, in our module and in the source framework's memory.
_RUNS = 2
#: Address space of a worker: files are mapped there as well, each module's weights and the
#: network's own.
_MAPPED = 6


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in all, and those that are free or can be freed."""

    total: int
    available: int


def machine_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Memory:
    """What this process can have: what the machine has, and no more than the control groups that
    it is in let it have."""
    machine = {
        name: int(value.split()[0]) * 1024
        for name, _, value in (
            line.partition(":")
            for line in (proc / "meminfo").read_text(encoding="utf-8").splitlines()
        )
        if name in ("MemTotal", "MemAvailable")
    }
    total, available = machine["MemTotal"], machine.get("MemAvailable", machine["MemTotal"])
    for limit, used in _limits(proc, groups):
        total, available = min(total, limit), min(available, max(0, limit - used))
    return Memory(total, available)


def _limits(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of each control group around this process that has a limit."""
    for folder, second in groups_of("memory", proc, groups):
        names = (
            ("memory.max", "memory.current", "inactive_file")
            if second
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        yield from _limit(folder, *names)


def _limit(folder: Path, limit: str, usage: str, cached: str) -> Iterator[tuple[int, int]]:
    try:
        most = (folder / limit).read_text(encoding="utf-8").strip()
        used = int((folder / usage).read_text(encoding="utf-8"))
        statistics = dict(
            line.split()
            for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
        )
    except (OSError, ValueError):
        return
    if most.isdigit():
        # Pages of files that nobody has used lately are given back when they are asked for.
        yield int(most), used - int(statistics.get(cached, 0))


def needed(footprint: Footprint) -> int:
    """Bytes that tuning a network takes at its worst moment, in all processes together."""
    return _PROCESSES_BYTES + _COPIES * footprint.weights + _RUNS * footprint.activations


def worker_bytes(base: int, footprint: Footprint) -> int:
    """Address space that a worker may take which runs whole networks; `base` is what one may take
    that measures programs alone."""
    return base + _MAPPED * footprint.weights + 2 * _RUNS * footprint.activations


def check_fits(name: str, footprint: Footprint, memory: Memory) -> None:
    """Raises JobError for a network that this machine has not the memory for."""
    need = needed(footprint)
    if need <= memory.available:
        return
    parts = f"{gib(footprint.weights)} of weights"
    if footprint.activations:
        parts += f", {gib(footprint.activations)} of tensors between operators"
    if need <= memory.total:
        has = f"{gib(memory.available)} of this machine's {gib(memory.total)} are free"
        cure = "end what else uses it, then give the same command again"
    else:
        has = f"this machine has {gib(memory.total)}"
        cure = "use a machine or a container with more, or export the network smaller"
    raise JobError(f"{name} needs {gib(need)} of memory ({parts}), {has}", cure=cure)


def give_back() -> None:
    """Give the memory of what is not used any more back to the machine.

    Graphs of source frameworks refer to themselves, and to their weights: they go when the
    collector comes. What C's allocator has free it keeps until it is told to.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc
        trim(0)


def gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB"
