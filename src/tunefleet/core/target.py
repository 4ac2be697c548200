"""Targets of code generation, tagged by kind: a CPU, or a CUDA GPU with its host."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

#: Default limits of a kernel: static shared memory (TVM uses no other), threads and registers of
#: every NVIDIA GPU since Volta.
SHARED_MEMORY_BYTES = 48 * 1024
THREADS_PER_BLOCK = 1024
REGISTERS_PER_BLOCK = 65536
WARP_SIZE = 32
#: The minimum compute capability for `cp.async`.
_COPIES_AHEAD = (8, 0)
#: The minimum compute capability for products by tensor cores, by the type of their factors.
TENSOR_CORES = {"float16": (7, 0), "int8": (7, 2), "bfloat16": (8, 0)}


class Target(ABC):
    """A target of any kind. `kind` is the tag, TVM's name for it; `str` the canonical text, which
    also identifies the target of stored tasks and records."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def threads(self) -> int:
        """The number of CPU threads of the code."""

    @property
    @abstractmethod
    def cpu(self) -> CpuTarget:
        """The target of code on the CPU: the target itself, or that of its host."""

    @property
    def copies_ahead(self) -> bool:
        """Whether copies to shared memory overlap with computation (`cp.async`)."""
        return False

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """JSON with the tag under `kind`."""

    @staticmethod
    def from_json(value: dict[str, Any]) -> Target:
        """The inverse of `to_json`.

        Raises KeyError or TypeError for missing or unknown fields, ValueError for invalid values.
        """
        fields = dict(value)
        kind = fields.pop("kind")
        if kind == CpuTarget.kind:
            return CpuTarget(**{**fields, "mattr": tuple(fields["mattr"])})
        if kind == CudaTarget.kind:
            host = Target.from_json(fields["host"])
            return CudaTarget(**{**fields, "host": host.cpu})
        raise ValueError(f"unknown kind of target '{kind}'")


@dataclass(frozen=True, slots=True)
class CpuTarget(Target):
    """An LLVM target: processor name, extra features, and the number of threads.

    The number of threads belongs to the target because it changes which program is fastest, and
    TVM's default (half of the logical CPUs) is not what users deploy with. `mtriple` is empty for
    code that runs on the kind of machine that compiles it.
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
            raise ValueError("the names of a processor and its features must be texts")
        object.__setattr__(self, "mattr", tuple(sorted(set(self.mattr))))

    @property
    def cpu(self) -> CpuTarget:
        return self

    @property
    def machine(self) -> str:
        """The architecture as in `uname -m`; empty for that of the compiling machine."""
        return self.mtriple.partition("-")[0]

    def to_json(self) -> dict[str, Any]:
        # Stored targets have the triple only if it is not empty.
        value = {"mcpu": self.mcpu, "threads": self.threads, "mattr": self.mattr, "kind": self.kind}
        return {**value, "mtriple": self.mtriple} if self.mtriple else value

    def __str__(self) -> str:
        return f"{self.kind} {self.options()} -num-cores={self.threads}"

    def options(self, prefix: str = "-") -> str:
        """The options that select the processor, each with this prefix."""
        named = {"mtriple": self.mtriple, "mcpu": self.mcpu, "mattr": ",".join(self.mattr)}
        return " ".join(f"{prefix}{name}={value}" for name, value in named.items() if value)


@dataclass(frozen=True, slots=True)
class CudaTarget(Target):
    """An NVIDIA GPU: its architecture (`sm_80`), the CPU that launches its kernels, and the limits
    of a thread block: bytes of shared memory, threads, 32-bit registers.
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
        """Default limits and the single launching thread are omitted."""
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
