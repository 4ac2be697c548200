"""The least time that a device needs for a task: the roofline of Williams, Waterman and Patterson
(2009), with a roof for each level of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

#: Beyond a last cache of this size nothing says how fast memory is: data that do not fit into it
#: would take too much of the machine.
_LARGEST_LAST_CACHE = 32 * 2**20
_LARGEST_READ = 64 * 2**20
#: Of a shared cache other programs have a part.
_MOST_OF_SHARED = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """How fast all threads together read data that a level of the memory holds: GB/s, measured.

    `size` is the bytes that the level holds; 0 for the memory, which holds all.
    """

    level: str
    size: int
    gb_s: float

    def __post_init__(self) -> None:
        if self.gb_s <= 0:
            raise ValueError(f"{self.level}: {self.gb_s} GB/s are no bandwidth")


def levels_to_read(
    caches: Sequence[tuple[str, int]], threads: int
) -> tuple[tuple[str, int, int], ...]:
    """Levels of memory whose bandwidth can be measured: name, bytes that it holds (0: all), bytes
    to read. `caches` are those of one core, L1 and L2 its own and the last shared."""
    levels = [
        (name, size * threads, size * threads // 2) if name in ("L1", "L2")
        else (name, size, min(size // 2, _MOST_OF_SHARED))
        for name, size in sorted(caches)
    ]  # fmt: skip
    if levels and levels[-1][1] <= _LARGEST_LAST_CACHE:
        levels.append(("memory", 0, _LARGEST_READ))
    return tuple(levels)


def without_dips(bandwidths: Sequence[Bandwidth]) -> tuple[Bandwidth, ...]:
    """With each level at least as fast as those behind it: one that was measured to be slower was
    disturbed, since what it holds can be read from there as well."""
    fastest, raised = 0.0, []
    for level in reversed(bandwidths):
        fastest = max(fastest, level.gb_s)
        raised.append(replace(level, gb_s=fastest))
    return tuple(reversed(raised))


def bandwidth_for(size: int, bandwidths: Sequence[Bandwidth]) -> Bandwidth | None:
    """The level that holds so many bytes, from the smallest; None where it was not measured."""
    return next((each for each in bandwidths if not each.size or size <= each.size), None)


def least_seconds(
    flops: float, size: int, peak_gflops: float | None, bandwidths: Sequence[Bandwidth]
) -> float | None:
    """What a task takes at least that computes `flops` and moves `size` bytes, each once; None
    where the limits of the device are not known."""
    level = bandwidth_for(size, bandwidths)
    if level is None or not peak_gflops:
        return None
    return max(flops / (peak_gflops * 1e9), size / (level.gb_s * 1e9))
