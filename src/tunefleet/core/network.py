"""What is known of a network without its framework: name, tensors, identity."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunefleet.core.shapes import Constants

#: Names of the functions that a module calls for what stays in its source framework begin so.
SEGMENT_PREFIX = "tunefleet.segment."

#: The extent of an output's dimension that depends on the values of the inputs.
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, shape and NumPy dtype name of one input or output. Only an output's extent may be
    `UNKNOWN`."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if any(d < UNKNOWN for d in self.shape):
            raise ValueError(f"{self.name}: shape {self.shape} has a negative extent")

    @property
    def size(self) -> int:
        """How many elements it has, if its shape is known."""
        return prod(self.shape)

    def __str__(self) -> str:
        extents = ("?" if d == UNKNOWN else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{', '.join(extents)}]"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a network takes of memory: bytes of all weights, and of the
    tensors that live at once where they are most."""

    weights: int
    activations: int = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs that a network takes at one choice of its free dimensions, and its outputs."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """A network as the store and an artifact know it.

    `digest` identifies its content: the SHA-256 of the file, or of the zoo specification together
    with the version of the zoo, and of the shapes that were chosen. Two jobs are the same job only
    when it agrees. `inputs` and `outputs` are those of the first shape, `others` those of the
    further shapes that one artifact takes. `constants` are inputs of the source that always have
    these values.
    """

    name: str
    source: str
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    others: tuple[Signature, ...] = ()
    constants: Constants = ()

    @property
    def signatures(self) -> tuple[Signature, ...]:
        return (Signature(self.inputs, self.outputs), *self.others)
