"""tunefleet autotunes neural networks for the hardware they will run on.

The public surface; each name is imported when it is first used, so that `import tunefleet` costs
nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers, which do not see what `__getattr__` gives
    from tunefleet.artifacts.module import TunedModule
    from tunefleet.artifacts.opening import load, run_artifact
    from tunefleet.client import connect
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.target import Target
    from tunefleet.errors import TunefleetError
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.runs.errands import evaluate_artifact
    from tunefleet.runs.known import build
    from tunefleet.runs.listing import list_tasks
    from tunefleet.runs.new_session import from_network
    from tunefleet.runs.session import Session
    from tunefleet.runs.timeline import run_timeline
    from tunefleet.runs.tuning import tune

# ONNX Runtime tells its maker of its use, with files and threads for it, unless this is said before
# it is first loaded (its Privacy.md): in whatever process that is, this line comes before. Who has
# set it otherwise has decided.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_HOMES = {
    "BenchmarkContext": "tunefleet.runs.context",
    "Budget": "tunefleet.core.budget",
    "Session": "tunefleet.runs.session",
    "Target": "tunefleet.core.target",
    "TuneSettings": "tunefleet.core.settings",
    "TunedModule": "tunefleet.artifacts.module",
    "TunefleetError": "tunefleet.errors",
    "build": "tunefleet.runs.known",
    "connect": "tunefleet.client",
    "evaluate_artifact": "tunefleet.runs.errands",
    "from_network": "tunefleet.runs.new_session",
    "list_tasks": "tunefleet.runs.listing",
    "load": "tunefleet.artifacts.opening",
    "run_artifact": "tunefleet.artifacts.opening",
    "run_timeline": "tunefleet.runs.timeline",
    "tune": "tunefleet.runs.tuning",
}

__all__ = [
    "BenchmarkContext",
    "Budget",
    "Session",
    "Target",
    "TuneSettings",
    "TunedModule",
    "TunefleetError",
    "build",
    "connect",
    "evaluate_artifact",
    "from_network",
    "list_tasks",
    "load",
    "run_artifact",
    "run_timeline",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib import metadata

        return metadata.version("tunefleet")
    raise AttributeError(f"module 'tunefleet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
