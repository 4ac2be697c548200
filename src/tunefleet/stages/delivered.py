"""Where the modules lie that a run compiled and delivers."""

from __future__ import annotations

from pathlib import Path

from tunefleet.core.step import Compiled, StepKind, Verified
from tunefleet.stages.compile_ import GRAPHS, MODULE
from tunefleet.stages.place import StepRequest, Workplace
from tunefleet.stages.prepared import object_of, prepared_of, result_of


def tuned_module(place: Workplace, request: StepRequest, *, graphs: bool = False) -> Path:
    """The library that the run compiled, or that with CUDA graphs, which only GPUs have. Raises
    LostInputError."""
    owner = request.key.owner
    compiled = result_of(place, owner, StepKind.COMPILE, Compiled)
    folder = object_of(place, owner, compiled.module, StepKind.COMPILE)
    return folder / (GRAPHS if graphs else MODULE)


def delivered_module(place: Workplace, request: StepRequest) -> Path:
    """The library that is delivered, as `run` decided."""
    verified = result_of(place, request.key.owner, StepKind.VERIFY, Verified)
    if verified.delivered == "tuned":
        return tuned_module(place, request, graphs=verified.graphs)
    return prepared_of(place, request.preparation).plain
