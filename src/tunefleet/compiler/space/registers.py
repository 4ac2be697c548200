"""The vector registers of a processor."""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.compiler.toolchain.host import llvm_features, machine_of
from tunefleet.core.target import Target

#: Values of a vector, at least.
_FEWEST_LANES = 4


@dataclass(frozen=True, slots=True)
class Registers:
    """The number of registers, and the float32 values of each."""

    count: int
    lanes: int

    @classmethod
    def of(cls, target: Target) -> Registers | None:
        """None for a processor without vectors of a known width."""
        features, machine = llvm_features(target.cpu), machine_of(target)
        if machine == "aarch64":
            return cls(32, 4)
        if machine != "x86_64":
            return None
        if "avx512f" in features:
            return cls(32, 16)
        return cls(16, 8) if {"avx", "fma"} <= features else cls(16, 4)

    def lanes_of(self, columns: int) -> int:
        """The values of the widest vectors, down to four, that divide the columns; 0 if none do."""
        lanes = self.lanes
        while lanes >= _FEWEST_LANES and columns % lanes:
            lanes //= 2
        return lanes if lanes >= _FEWEST_LANES else 0
