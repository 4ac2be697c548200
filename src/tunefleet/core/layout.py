"""Assigns the cores of a machine to hosts and device, with the reason."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tunefleet.errors import InputError

#: Upper bound of core numbers: a typing error must not create a list of millions.
_MOST_CORES = 1 << 16


@dataclass(frozen=True, slots=True)
class MachineLayout:
    """The cores of hosts and device, and the physical units that they own.

    A core is a logical CPU with the kernel's number. A unit is a physical core: its two
    hyperthreads are one unit, since a stage on one disturbs a measurement on the other.
    """

    host_cores: tuple[int, ...]
    device_cores: tuple[int, ...]
    host_units: frozenset[str]
    device_units: frozenset[str]

    def __post_init__(self) -> None:
        for cores, units in (
            (self.host_cores, self.host_units),
            (self.device_cores, self.device_units),
        ):
            if not cores or not 1 <= len(units) <= len(cores):
                raise ValueError(f"{len(cores)} cores cannot be {len(units)} physical cores")

    @classmethod
    def of(
        cls, host_cores: Iterable[int], device_cores: Iterable[int], siblings: Mapping[int, int]
    ) -> MachineLayout:
        """A layout of cores; `siblings` maps each core to its physical core."""
        host, device = _ordered(host_cores), _ordered(device_cores)
        return cls(host, device, _units(host, siblings), _units(device, siblings))

    @property
    def builders(self) -> int:
        """The number of candidates that the hosts build in parallel."""
        return len(self.host_cores)

    @property
    def time_shared(self) -> bool:
        """Whether hosts and device share a unit, so that their stages take turns."""
        return not self.host_units.isdisjoint(self.device_units)


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """A layout, the number of threads of the tuned code, and the reason in one sentence."""

    layout: MachineLayout
    threads: int
    reason: str


def parse_cores(text: str) -> tuple[int, ...]:
    """`0,2-3` as (0, 2, 3); raises InputError for anything else."""
    cores: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part)
        if match is None:
            raise _unreadable(text, f"cannot read '{part.strip()}'")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise _unreadable(text, f"{part.strip()} runs backwards")
        if last >= _MOST_CORES:
            raise _unreadable(text, f"no machine has a core {last}")
        cores.update(range(first, last + 1))
    return _ordered(cores)


def format_cores(cores: Collection[int]) -> str:
    """(0, 2, 3) as `0,2-3`."""
    spans: list[tuple[int, int]] = []
    for core in _ordered(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], core)
        else:
            spans.append((core, core))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def choose_layout(
    usable: Sequence[int],
    siblings: Mapping[int, int],
    threads: int | None = None,
    host_cores: Collection[int] | None = None,
    device_cores: Collection[int] | None = None,
    *,
    slower: Collection[int] = (),
) -> LayoutChoice:
    """The layout for the user's options.

    `siblings` maps each usable core to its physical core. By default hosts and device both use all
    cores and take turns, since code for all cores is measured on all of them. With fewer threads
    than physical cores, the last physical cores belong to the device alone. Hosts get the cores of
    a `slower` kind, unless there are more threads than fast cores. Raises InputError for cores that
    are not usable and for more threads than the device has cores.
    """
    for who, cores in (("hosts", host_cores), ("the device", device_cores)):
        _check_usable(who, cores, usable)
    if host_cores is None and device_cores is None:
        device_cores = _last_physical(usable, siblings, threads, slower)
    if device_cores is None:
        device_cores = _others(usable, siblings, host_cores or ())
    if host_cores is None:
        host_cores = _others(usable, siblings, device_cores)
    layout = MachineLayout.of(host_cores, device_cores, siblings)
    chosen = len(layout.device_units) if threads is None else threads
    if not 1 <= chosen <= len(layout.device_cores):
        most = len(layout.device_cores)
        raise InputError(
            f"{_count(chosen, 'thread')} cannot run on {_named(layout.device_cores)}, "
            "which the device has",
            cure=f"use --threads {most}" + (" or fewer" if most > 1 else ""),
        )
    return LayoutChoice(layout, chosen, _reason(layout, chosen, usable))


def joined(siblings: Mapping[int, int], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Physical cores where the two cores of each of these pairs are on one; others stay as they
    are in `siblings`, which maps each core to its physical core."""
    merged = dict(siblings)
    for pair in pairs:
        units = {merged[core] for core in pair if core in merged}
        merged |= {core: min(units) for core, unit in merged.items() if unit in units}
    return merged


def _check_usable(who: str, cores: Collection[int] | None, usable: Sequence[int]) -> None:
    if cores is None:
        return
    there = f"this process may use {_named(usable)}"
    if not cores:
        raise InputError(f"{who} got no core; {there}", cure="give at least one of them")
    missing = set(cores) - set(usable)
    if missing:
        are = "are" if len(missing) > 1 else "is"
        raise InputError(
            f"{_named(missing)} for {who} {are} not usable; {there}", cure="choose among these"
        )


def _last_physical(
    usable: Sequence[int],
    siblings: Mapping[int, int],
    threads: int | None,
    slower: Collection[int],
) -> tuple[int, ...]:
    """The cores of the last `threads` physical cores, preferring fast ones; without a number, all
    fast cores."""
    physical: dict[int, list[int]] = {}
    for core in sorted(usable, key=lambda core: (core not in slower, core)):
        physical.setdefault(siblings[core], []).append(core)
    fast = sum(group[0] not in slower for group in physical.values())
    last = list(physical.values())[-(threads or fast or len(physical)) :]
    return _ordered(core for group in last for core in group)


def _others(
    usable: Sequence[int], siblings: Mapping[int, int], taken: Collection[int]
) -> tuple[int, ...]:
    """The cores of all free physical cores; all cores if none is free."""
    held = {siblings[core] for core in taken}
    return _ordered(core for core in usable if siblings[core] not in held) or _ordered(usable)


def _reason(layout: MachineLayout, threads: int, usable: Sequence[int]) -> str:
    host, device = layout.host_cores, layout.device_cores
    physical = len(layout.device_units)
    common = set(host) & set(device)
    if not layout.time_shared:
        return (
            f"hosts run on {_named(host)}, the device with {_count(threads, 'thread')} on "
            f"{_named(device)}: builds go on while it measures"
        )
    if host == device == _ordered(usable) and threads >= physical:
        kind = "cores" if physical == len(device) else "physical cores"
        few = {1: ("the only core", "it"), 2: (f"both {kind}", "both")}
        those, them = few.get(physical, (f"all {physical} {kind}", "them all"))
        why = f"code is tuned for {those}, so measurements need {them}"
    elif host == device:
        why = f"hosts and the device run on the same {_named(device)}"
    elif common:
        why = f"hosts ({_named(host)}) and the device ({_named(device)}) share {_named(common)}"
    else:
        same = "cores" if len(layout.host_units & layout.device_units) > 1 else "core"
        why = (
            f"hosts ({_named(host)}) and the device ({_named(device)}) run on hyperthreads of the "
            f"same physical {same}"
        )
    return f"{why}: builds and measurements take turns"


def _units(cores: Iterable[int], siblings: Mapping[int, int]) -> frozenset[str]:
    return frozenset(f"core{siblings[core]}" for core in cores)


def _ordered(cores: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(cores)))


def _named(cores: Collection[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {format_cores(cores)}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _unreadable(text: str, cause: str) -> InputError:
    return InputError(f"'{text}' is not a list of cores: {cause}", cure="write it like 0,2-3")
