"""The vector registers of a processor, and the register tiles of products that suit them: as many
sums as the registers hold, and at least as many as hide the latency of the multiply-add (Goto and
van de Geijn, "Anatomy of high-performance matrix multiplication", 2008)."""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.compiler.toolchain.host import llvm_features, machine_of
from tunefleet.core.target import Target

#: Values of a vector, at least.
_FEWEST_LANES = 4
#: Values of a vector below which two of them overlap rather than divide the columns.
SHORT_LANES = 8
#: Register tiles with sketches per task.
_TILES = 3
#: Sums below which the latency of a multiply-add is not hidden: four cycles, two in each.
_LEAST_SUMS = 8
#: Registers besides the sums, at least: the weights of a step and a value of the data; LLVM spills
#: sums with fewer than four (29 sums of AVX-512, for one, take 1.3 times as long as 28).
_SPARE = 4
#: The cost of reading a value, in multiply-adds, where caches are not near.
_READ_COST = 0.1


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

    def covering(self, columns: int) -> tuple[int, ...]:
        """The values of vectors for columns that only short vectors divide: the widest ones, and of
        AVX-512 half of them, of which less is computed twice. () for other columns."""
        least = min(self.lanes, SHORT_LANES)
        if columns % least == 0:
            return ()
        return tuple(n for n in (self.lanes, self.lanes // 2) if least <= n <= columns)


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`height` rows by `vectors` vectors of columns."""

    height: int
    vectors: int

    @property
    def sums(self) -> int:
        return self.height * self.vectors

    def cost(self, rows: int, vectors: int) -> float:
        """Of a product, in multiply-adds of vectors per step of the depth. A cycle has as many
        loads as multiply-adds."""
        tiles = -(-rows // self.height) * (vectors // self.vectors)
        loads = self.height + self.vectors
        return tiles * (max(self.sums, loads, _LEAST_SUMS) + _READ_COST * loads)


def tiles_of(registers: int, rows: int, vectors: int) -> list[RegisterTile]:
    """The cheapest register tiles of a product of so many rows and vectors of columns, the best
    first."""
    fitting = [
        RegisterTile(height, wide)
        for wide in range(1, registers // 2)
        if vectors % wide == 0
        for height in range(1, min(rows, registers) + 1)
        if height * wide + max(wide + 1, _SPARE) <= registers
    ]
    return sorted(fitting, key=lambda tile: (tile.cost(rows, vectors), -tile.sums))[:_TILES]
