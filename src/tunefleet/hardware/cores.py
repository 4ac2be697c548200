"""The cores of a processor: hyperthreads and slower cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tunefleet.core.layout import parse_cores
from tunefleet.errors import InputError

#: Reads a text file of a machine's kernel; "" if it cannot be read.
ReadFile = Callable[[str], str]

_DEVICES = Path("/sys/devices")
#: The kernel's lists of efficient cores in Intel's hybrid processors.
_EFFICIENT = ("cpu_atom", "cpu_lowpower")
#: Minimum gain in throughput for using slower cores too.
_WORTH = 1.25


def physical_cores(
    cores: Iterable[int], system: Path = _DEVICES / "system" / "cpu"
) -> dict[int, int]:
    """The physical core of each core: the first of its hyperthreads. By default each core is its
    own."""
    physical = {}
    for core in sorted(cores):
        try:
            listed = (system / f"cpu{core}" / "topology" / "thread_siblings_list").read_text(
                encoding="utf-8"
            )
            physical[core] = min(parse_cores(listed))
        except (OSError, InputError):
            physical[core] = core
    return physical


def slower_cores(read: ReadFile) -> frozenset[int]:
    """The cores of a machine that tuned code should not use: efficient cores (Intel), or little
    cores (ARM), next to faster ones.

    Loops are divided into equal parts, so the throughput is the speed of the slowest core times the
    number of cores. If the kernel reports nothing, none is slower.
    """
    try:
        cores = set(parse_cores(read(f"{_DEVICES}/system/cpu/online").strip()))
    except InputError:
        return frozenset()
    efficient: set[int] = set()
    for kind in _EFFICIENT:
        with suppress(InputError):
            efficient.update(parse_cores(read(f"{_DEVICES}/{kind}/cpus").strip()))
    if efficient & cores:
        return frozenset(efficient & cores if cores - efficient else ())
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        speeds = {core: read(f"{_DEVICES}/system/cpu/cpu{core}/{name}").strip() for core in cores}
        if all(text.isdigit() for text in speeds.values()):
            return _below_best({core: int(text) for core, text in speeds.items()})
    return frozenset()


def _below_best(speeds: Mapping[int, int]) -> frozenset[int]:
    best, least = 0.0, 0
    for speed in sorted(set(speeds.values()), reverse=True):
        at_once = speed * sum(each >= speed for each in speeds.values())
        # Turbo lets single cores run slightly faster; these are not another kind.
        if not best or at_once >= _WORTH * best or speed >= 0.9 * least:
            best, least = float(at_once), speed
    return frozenset(core for core, speed in speeds.items() if speed < least)
