from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.frameworks
@pytest.mark.slow
def test_no_package_tells_its_maker_of_its_use(tmp_path: Path) -> None:
    """ONNX Runtime would make a number for this machine, and a list of what it has to send."""
    pytest.importorskip("onnxruntime")
    assert _said("import tunefleet, onnxruntime", {"HOME": str(tmp_path)}) == "1\n"
    assert list(tmp_path.iterdir()) == []


def test_who_wants_it_told_has_decided() -> None:
    assert _said("import tunefleet", {"ORT_DISABLE_TELEMETRY": "0"}) == "0\n"


def _said(code: str, given: dict[str, str]) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"} | given
    command = [sys.executable, "-c", f"{code}, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
