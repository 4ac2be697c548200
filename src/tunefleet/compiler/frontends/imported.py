"""What every frontend hands over, and the seam that a frontend is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tunefleet.core.importing import InputFile
from tunefleet.core.network import NetworkInfo
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

if TYPE_CHECKING:
    import tvm


#: An import of so many takes a minute: the limit bounds its time.
_MOST_OPERATORS = 20_000


def check_operators(count: int, what: str) -> None:
    """Raises InputError for a graph that nobody would wait for."""
    if count > _MOST_OPERATORS:
        raise InputError(
            f"{what} has {count:,} operators, more than {_MOST_OPERATORS:,} are not imported",
            cure="export a smaller part of it, or its loops as loops",
        )


class Reference(Protocol):
    """Runs the source framework: the outputs that a compiled network must reproduce, and the
    latency that it has to beat.

    Inputs are in the order of `NetworkInfo.inputs`, outputs in the order of its outputs. `threads`
    is set for the call, whatever the process uses otherwise. Not thread-safe. It travels between
    processes by pickle, and what it opened stays behind: the first call in a process opens the
    network.
    """

    @property
    def framework(self) -> str:
        """What runs it, as people call it: ONNX Runtime, PyTorch."""

    def describe(self) -> dict[str, Any]:
        """A JSON value that `references.reference_of` makes such a reference of, in any process of
        this machine."""

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]: ...

    def bound(self, inputs: Sequence[np.ndarray], threads: int) -> Callable[[], object]:
        """One inference per call, inputs already in place and threads set: for measuring."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a network that stays in its source framework.

    `name` is the function that the module calls (`tunefleet.artifacts.segments`), `framework` what
    runs it, `nodes` are its operators as `Operator name`, `reason` says why they are not compiled,
    `flops` is an estimate of what it computes, 0 where nothing is known.
    """

    name: str
    framework: str
    nodes: tuple[str, ...]
    reason: str
    flops: float = 0.0


@dataclass(frozen=True)
class ImportedNetwork:
    """A network as Relax, beside the means to check it.

    `mod` has one function, `main`, with static shapes and the weights bound as constants; it
    returns a tensor or a tuple of tensors, and calls the function of each of `segments`. It is None
    where it has been used up: it holds all weights.
    `example_inputs` are the same in every process; `drawn`: none came with the source. `notes` are
    what the user should know, `warnings` what may change what they trust. `lost` is how far the
    source is from the network in float32 that tunefleet quantised, in the mean of squares.
    """

    info: NetworkInfo
    mod: tvm.IRModule | None
    reference: Reference
    example_inputs: tuple[np.ndarray, ...]
    segments: tuple[Segment, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    drawn: bool = False
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """How a network is to be imported.

    `shapes` has one value for each name. `folder` is where the module will lie: files of segments
    go below it (`segments.segment_file`). `whole`, `trust` and `inputs` as in `ImportOptions`.
    """

    folder: Path
    shapes: ShapeRequest = field(default_factory=ShapeRequest)
    whole: bool = False
    trust: bool = False
    inputs: tuple[InputFile, ...] = ()


class Frontend(Protocol):
    """Turns one kind of source into Relax.

    Stateless and safe to call from one thread at a time; `accepts` looks at the specification
    only, `load` opens it. `load` raises InputError for anything wrong with the source and
    SetupError for a package that is missing; no other error of the source framework escapes.
    """

    name: str

    def accepts(self, spec: str) -> bool: ...

    def load(self, spec: str, request: ImportRequest) -> ImportedNetwork: ...
