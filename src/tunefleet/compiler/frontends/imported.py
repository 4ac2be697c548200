"""What every frontend hands over, and the seam that a frontend is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tunefleet.core.network import NetworkInfo

if TYPE_CHECKING:
    import tvm


class Reference(Protocol):
    """Runs the source framework: the outputs that a compiled network must reproduce.

    Inputs are in the order of `NetworkInfo.inputs`, outputs in the order of its outputs.
    `threads` is set for the call, whatever the process uses otherwise. Not thread-safe.
    """

    def __call__(self, inputs: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class ImportedNetwork:
    """A network as Relax, beside the means to check it.

    `mod` has one function, `main`, with static shapes and the weights bound as constants; it
    returns a tensor or a tuple of tensors. `example_inputs` are the same in every process.
    """

    info: NetworkInfo
    mod: tvm.IRModule
    reference: Reference
    example_inputs: tuple[np.ndarray, ...]


class Frontend(Protocol):
    """Turns one kind of source into Relax.

    Stateless and safe to call from one thread at a time; `accepts` looks at the specification
    only, `load` opens it. `load` raises InputError for anything wrong with the source and
    SetupError for a package that is missing; no other error of the source framework escapes.
    """

    name: str

    def accepts(self, spec: str) -> bool: ...

    def load(self, spec: str) -> ImportedNetwork: ...


Spec = str | os.PathLike[str]
