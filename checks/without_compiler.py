"""Tests without the compiler and without frameworks: `pytest --without-compiler`, `make quick`.

Neither can be imported then, in this process or in those that it starts. What needs one and does
not say so by its marker fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

#: What takes seconds to import, or is not there where only tunefleet's pure rooms are worked on.
ABSENT = (
    "tvm", "tvm_ffi", "torch", "onnx", "onnxruntime", "transformers", "keras", "tensorflow",
    "ai_edge_litert", "tflite",
)  # fmt: skip

#: Which tests are left. A marker says what a test needs.
LEFT = "not tvm and not frameworks and not slow"


def hide(folder: Path) -> None:
    """Makes imports fail, here by `sys.modules` and in new processes by modules in `folder`."""
    loaded = [name for name in ABSENT if name in sys.modules]
    if loaded:
        raise pytest.UsageError(f"already imported: {', '.join(loaded)}")
    for name in ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]  # the import system's word for absent
        text = f"raise ModuleNotFoundError('hidden by --without-compiler', name={name!r})\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])


def found() -> list[str]:
    """What was imported in spite of it."""
    return [name for name in ABSENT if sys.modules.get(name) is not None]


def skipped(report: pytest.CollectReport, path: Path) -> bool:
    """Whether a file failed to be collected by what it says that it needs; then it is skipped.

    Markers choose among tests that are collected, and files whose tests all need the compiler
    import it at their top.
    """
    if not report.call or not report.call.excinfo:
        return False
    raised = report.call.excinfo.value
    # pytest wraps an ImportError; `system.packages.require` raises SetupError.
    cause = raised.__cause__
    absent = isinstance(cause, ModuleNotFoundError) and cause.name in ABSENT
    # Imported here: another project's tests may run with these hooks.
    from tunefleet.errors import SetupError

    if not absent and not isinstance(raised, SetupError):
        return False
    marked = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("pytestmark = ")
    ]
    if not any("pytest.mark.tvm" in line or "pytest.mark.frameworks" in line for line in marked):
        return False
    report.outcome = "skipped"
    report.longrepr = (str(path), 1, "all its tests need the compiler or a framework")
    return True
