"""What code is generated for: one tagged value by kind, a CPU or a CUDA GPU with its host."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

#: What a kernel may take of a GPU where nothing else is said: the limits of static shared memory
#: (TVM asks for no other), of threads and of registers of every NVIDIA GPU since Volta.
SHARED_MEMORY_BYTES = 48 * 1024
THREADS_PER_BLOCK = 1024
REGISTERS_PER_BLOCK = 65536
WARP_SIZE = 32
#: The least compute capability of a GPU that has `cp.async`.
_COPIES_AHEAD = (8, 0)


class Target(ABC):
    """A target of any kind. `kind` is the tag, TVM's name of it; `str` the canonical text, under
    which tasks and records are stored too."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of the CPU that the code will use."""

    @property
    @abstractmethod
    def cpu(self) -> CpuTarget:
        """The target of what runs on a CPU: its own, or that of its host."""

    @property
    def copies_ahead(self) -> bool:
        """Whether memory is copied to the chip while what was copied before is computed with."""
        return False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """As JSON, with the tag under `kind`."""

    @staticmethod
    def from_json(value: dict[str, Any]) -> Target:
        """The target of `to_json`.

        Raises KeyError or TypeError where a field is missing or unknown, ValueError for a value
        that no target has.
        """
        fields = dict(value)
        kind = fields.pop("kind")
        if kind == CpuTarget.kind:
            return CpuTarget(**{**fields, "mattr": tuple(fields["mattr"])})
        if kind == CudaTarget.kind:
            host = Target.from_json(fields["host"])
            return CudaTarget(**{**fields, "host": host.cpu})
        raise ValueError(f"there are no targets of kind '{kind}'")


@dataclass(frozen=True, slots=True)
class CpuTarget(Target):
    """An LLVM target: processor name, extra features, and the threads the code will use.

    The thread count belongs to the target because it changes which program is fastest, and TVM's
    own default (half the logical CPUs) is not what a user deploys with. `mtriple` is empty for
    code that is made for machines of the kind that compiles it.
    """

    kind: ClassVar[str] = "llvm"

    mcpu: str
    threads: int
    mattr: tuple[str, ...] = ()
    mtriple: str = ""

    def __post_init__(self) -> None:
        if type(self.threads) is not int or self.threads < 1:
            raise ValueError(f"a target has at least one thread, not {self.threads}")
        if not all(isinstance(text, str) for text in (self.mcpu, self.mtriple, *self.mattr)):
            raise ValueError("a processor and its features are named by texts")
        object.__setattr__(self, "mattr", tuple(sorted(set(self.mattr))))

    @property
    def cpu(self) -> CpuTarget:
        return self

    @property
    def machine(self) -> str:
        """The architecture as `uname -m` says it; empty for that of the compiling machine."""
        return self.mtriple.partition("-")[0]

    def to_json(self) -> dict[str, Any]:
        # What every stored target has; the triple only where it says something.
        value = {"mcpu": self.mcpu, "threads": self.threads, "mattr": self.mattr, "kind": self.kind}
        return {**value, "mtriple": self.mtriple} if self.mtriple else value

    def __str__(self) -> str:
        return f"{self.kind} {self.options()} -num-cores={self.threads}"

    def options(self, prefix: str = "-") -> str:
        """The options that say which processor, each with this prefix."""
        named = {"mtriple": self.mtriple, "mcpu": self.mcpu, "mattr": ",".join(self.mattr)}
        return " ".join(f"{prefix}{name}={value}" for name, value in named.items() if value)


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """An NVIDIA GPU: its architecture (`sm_80`), the CPU that launches its kernels, and what one
    block of threads may take: bytes of shared memory, threads, registers of 32 bits.
    """

    kind: ClassVar[str] = "cuda"

    arch: str
    host: CpuTarget
    shared_memory_bytes: int = SHARED_MEMORY_BYTES
    threads_per_block: int = THREADS_PER_BLOCK
    registers_per_block: int = REGISTERS_PER_BLOCK
    warp_size: int = WARP_SIZE

    def __post_init__(self) -> None:
        if not re.fullmatch(r"sm_[1-9][0-9]{1,2}[af]?", self.arch):
            raise ValueError(f"a CUDA architecture is written like sm_80, not '{self.arch}'")
        limits = [getattr(self, name) for name in LIMITS.values()]
        if any(type(limit) is not int or limit < 1 for limit in limits):
            raise ValueError(f"a limit of a GPU is a positive whole number, not {limits}")
        if self.threads_per_block < self.warp_size:
            raise ValueError(
                f"a block has the {self.warp_size} threads of a warp at least, "
                f"not {self.threads_per_block}"
            )

    @property
    def cpu(self) -> CpuTarget:
        return self.host

    @property
    def threads(self) -> int:
        return self.host.threads

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, major and minor: (8, 0) of sm_80."""
        digits = self.arch.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    @property
    def copies_ahead(self) -> bool:
        return self.capability >= _COPIES_AHEAD

    def to_json(self) -> dict[str, Any]:
        limits = {name: getattr(self, name) for name in LIMITS.values()}
        return {"kind": self.kind, "arch": self.arch, "host": self.host.to_json(), **limits}

    def __str__(self) -> str:
        """Limits that are every GPU's are left out, as is the one thread that launches kernels."""
        default = CudaTarget(self.arch, self.host)
        limits = [
            f"-{option}={getattr(self, name)}"
            for option, name in LIMITS.items()
            if getattr(self, name) != getattr(default, name)
        ]
        threads = [f"-host-num-cores={self.threads}"] if self.threads > 1 else []
        words = [self.kind, f"-arch={self.arch}", *limits, self.host.options("-host-"), *threads]
        return " ".join(words)


#: Limits of a block of threads by TVM's names for them.
LIMITS = {
    "max_shared_memory_per_block": "shared_memory_bytes",
    "max_threads_per_block": "threads_per_block",
    "registers_per_block": "registers_per_block",
    "thread_warp_size": "warp_size",
}
