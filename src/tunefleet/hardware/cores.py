"""The cores of a processor: which are hyperthreads of one, and which are slower than others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tunefleet.core.layout import parse_cores
from tunefleet.errors import InputError

#: Reads a text file of a machine's kernel; "" for one that cannot be read.
ReadFile = Callable[[str], str]

_DEVICES = Path("/sys/devices")
#: Cores of Intel's hybrid processors that are no performance cores, as the kernel lists them.
_EFFICIENT = ("cpu_atom", "cpu_lowpower")
#: So much more has to be done at once for slower cores to be taken as well.
_WORTH = 1.25


def physical_cores(
    cores: Iterable[int], system: Path = _DEVICES / "system" / "cpu"
) -> dict[int, int]:
    """The physical core of each core: the first of its hyperthreads. Where the kernel tells
    nothing, each is its own."""
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
    """The cores of a machine that code had better leave to others, whoever may use them: efficient
    ones beside performance cores (Intel), little ones beside big ones (ARM).

    Loops are divided into equal parts, so the slowest core decides: what counts is its speed times
    how many there are. Where the kernel tells nothing, none is slower.
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
        told = {core: read(f"{_DEVICES}/system/cpu/cpu{core}/{name}").strip() for core in cores}
        if all(text.isdigit() for text in told.values()):
            return _below_best({core: int(text) for core, text in told.items()})
    return frozenset()


def _below_best(speeds: Mapping[int, int]) -> frozenset[int]:
    best, least = 0.0, 0
    for speed in sorted(set(speeds.values()), reverse=True):
        at_once = speed * sum(each >= speed for each in speeds.values())
        # Turbo lets single cores of one kind run a little faster: these are no kind.
        if not best or at_once >= _WORTH * best or speed >= 0.9 * least:
            best, least = float(at_once), speed
    return frozenset(core for core, speed in speeds.items() if speed < least)
