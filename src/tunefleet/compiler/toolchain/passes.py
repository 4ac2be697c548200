"""TVM's passes as signs of progress."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.system.progress import is_reported, working_on

tvm = load_tvm()


def reported_passes() -> list[Any]:
    """The instruments of a pass context that report each pass where this process is watched."""
    return [_ReportedPasses()] if is_reported() else []


@tvm.ir.instrument.pass_instrument
class _ReportedPasses:
    def run_before_pass(self, module: Any, info: Any) -> None:
        working_on(f"the pass {info.name}")
