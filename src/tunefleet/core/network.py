"""Description of a network without its framework: name, tensors, identity."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tunefleet.core.shapes import Constants

#: Prefix of the functions that a module calls for segments that stay in the source framework.
SEGMENT_PREFIX = "tunefleet.segment."

#: The extent of an output dimension that depends on the input values.
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, shape and NumPy dtype name of one input or output. Only outputs may have `UNKNOWN`
    extents."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if any(d < UNKNOWN for d in self.shape):
            raise ValueError(f"{self.name}: shape {self.shape} has a negative extent")

    @property
    def size(self) -> int:
        """The number of elements, if the shape is known."""
        return prod(self.shape)

    def __str__(self) -> str:
        extents = ("?" if d == UNKNOWN else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype}[{', '.join(extents)}]"


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The smallest and the largest value that an integer input is given where it is drawn."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory use of a network in bytes: all weights, and the peak of live tensors."""

    weights: int
    activations: int = 0


@dataclass(frozen=True, slots=True)
class SegmentCopies:
    """Tensors that each call of a network on a GPU copies, since its segments run on the CPU, and
    their bytes, None where the size of one depends on values."""

    to_cpu: int = 0
    to_cpu_bytes: int | None = 0
    to_gpu: int = 0
    to_gpu_bytes: int | None = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a network for one choice of its free dimensions."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """A network as the store and an artifact know it.

    `digest` identifies its content: the SHA-256 of the file, or of the zoo specification and the
    zoo's version, and of the chosen shapes. Two jobs are the same job only if it agrees. `inputs`
    and `outputs` belong to the first shape, `others` to the further shapes of the artifact.
    `constants` are inputs of the source with fixed values. `ranges` are those of the inputs, None
    of one that is no integer; none at all of networks that older versions imported.
    """

    name: str
    source: str
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    others: tuple[Signature, ...] = ()
    constants: Constants = ()
    ranges: tuple[IntegerRange | None, ...] = ()

    @property
    def signatures(self) -> tuple[Signature, ...]:
        return (Signature(self.inputs, self.outputs), *self.others)
