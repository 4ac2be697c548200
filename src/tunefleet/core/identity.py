"""Identities of devices and toolchains, each with an exact and a compatible tier.

*Exact*: a record is reused as it is. *Compatible*: it may start a search or train a cost model, and
is verified before use. Every lookup names its tier; nothing crosses tiers silently.
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from tunefleet.core.ids import digest

#: Placeholder for the name of a device that records do not name.
UNNAMED = "(not named)"


class Tier(StrEnum):
    EXACT = "exact"
    COMPATIBLE = "compatible"


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """The properties of a physical device that determine how fast a program runs.

    `key` is the user's own name for the device. Devices with different keys never share records on
    the exact tier, even when their hardware is the same.
    """

    kind: str
    name: str
    isa: tuple[str, ...]
    cores: int
    caches: tuple[tuple[str, int], ...]
    memory_gib: int
    key: str = ""

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ValueError(f"a device has at least one core, not {self.cores}")
        object.__setattr__(self, "isa", tuple(sorted(set(self.isa))))
        object.__setattr__(self, "caches", tuple(sorted(self.caches)))

    @property
    def exact(self) -> str:
        return _exact(self, repr(self))

    @property
    def hardware(self) -> str:
        """The exact identity, whatever its user calls it."""
        return replace(self, key="").exact

    @property
    def compatible(self) -> str:
        """Same kind and instruction set: programs run, and their ranking is likely similar."""
        return digest([self.kind, list(self.isa)])

    def to_json(self) -> dict[str, Any]:
        caches = [list(cache) for cache in self.caches]
        return {**asdict(self), "isa": list(self.isa), "caches": caches}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeviceIdentity:
        caches = tuple((str(level), int(size)) for level, size in value["caches"])
        return cls(**{**value, "isa": tuple(value["isa"]), "caches": caches})

    def __str__(self) -> str:
        units = "cores" if self.kind == "cpu" else "multiprocessors"
        return f"{self.name}, {self.cores} {units}"


@functools.lru_cache(maxsize=256)
def _exact(device: DeviceIdentity, text: str) -> str:
    """Every look at a job asks for it. `text` tells numbers of several types apart."""
    return digest(asdict(device))


@dataclass(frozen=True, slots=True)
class ToolchainIdentity:
    """The compiler versions and the version of the measurement rules. `cuda` is the version of the
    CUDA compiler and `driver` the CUDA version of the driver; both for GPUs only."""

    tunefleet: str
    tvm: str
    llvm: str
    measure_version: int
    cuda: str = ""
    driver: str = ""

    @property
    def exact(self) -> str:
        """Without tunefleet's own version, which changes neither code nor measurement."""
        of_gpu = [self.cuda, self.driver] if self.cuda else []
        return digest([self.tvm, self.llvm, self.measure_version, *of_gpu])

    @property
    def host(self) -> str:
        """The kind of host that builds with it."""
        return f"TVM {self.tvm}, LLVM {self.llvm}"

    @property
    def compatible(self) -> str:
        """Traces of the same TVM minor version can be replayed."""
        return digest(".".join(self.tvm.split(".")[:2]))

    def to_json(self) -> dict[str, Any]:
        of_gpu = () if self.cuda else ("cuda", "driver")
        return {name: value for name, value in asdict(self).items() if name not in of_gpu}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ToolchainIdentity:
        return cls(**value)
