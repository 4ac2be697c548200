"""What code is generated for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """An LLVM target: processor name, extra features, and the threads the code will use.

    The thread count belongs to the target because it changes which program is fastest, and TVM's
    own default (half the logical CPUs) is not what a user deploys with.
    """

    mcpu: str
    threads: int
    mattr: tuple[str, ...] = ()
    kind: str = "llvm"

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"a target has at least one thread, not {self.threads}")
        object.__setattr__(self, "mattr", tuple(sorted(set(self.mattr))))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Target:
        return cls(**{**value, "mattr": tuple(value["mattr"])})

    def __str__(self) -> str:
        """Also the key under which tasks and records are stored."""
        features = f" -mattr={','.join(self.mattr)}" if self.mattr else ""
        return f"{self.kind} -mcpu={self.mcpu}{features} -num-cores={self.threads}"
