"""What is known of a network without its framework: name, tensors, identity."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, static shape and NumPy dtype name of one input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if any(d <= 0 for d in self.shape):
            raise ValueError(f"{self.name}: shape {self.shape} is not static and positive")

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """A network as the store and an artifact know it.

    `digest` identifies its content: the SHA-256 of the file, or of the zoo specification together
    with the version of the zoo. Two jobs are the same job only when it agrees.
    """

    name: str
    source: str
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
