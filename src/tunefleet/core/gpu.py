"""A GPU as its driver describes it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tunefleet.core.identity import DeviceIdentity

#: The kind of identities of NVIDIA GPUs.
CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Gpu:
    """An NVIDIA GPU, or a slice of one (MIG) with the multiprocessors and the memory of the slice.

    `number` is the driver's among the GPUs that the process sees, `uuid` the same in every process;
    of a GPU elsewhere it is "", and so is `driver`.
    Sizes are in bytes, clocks in kHz at their nominal maximum. `driver` is the CUDA version of the
    driver, such as `13.0`.
    """

    number: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    multiprocessors: int
    clock_khz: int
    memory_clock_khz: int
    l2_bytes: int
    shared_memory_bytes: int
    threads_per_block: int
    registers_per_block: int
    warp_size: int
    driver: str

    @property
    def arch(self) -> str:
        """`sm_80` of compute capability 8.0."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    @property
    def address(self) -> str:
        """The GPU by its number: `cuda:0`."""
        return f"{CUDA}:{self.number}"

    @property
    def flush_bytes(self) -> int:
        """How much is written to empty the L2 cache."""
        return 2 * self.l2_bytes

    @property
    def identity(self) -> DeviceIdentity:
        """Without number and UUID: equal GPUs share records."""
        return DeviceIdentity(
            kind=CUDA,
            name=self.name,
            isa=(self.arch,),
            cores=self.multiprocessors,
            caches=(("L2", self.l2_bytes),),
            memory_gib=round(self.memory_bytes / 2**30),
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "capability": list(self.capability)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Gpu:
        major, minor = value["capability"]
        return cls(**{**value, "capability": (int(major), int(minor))})
