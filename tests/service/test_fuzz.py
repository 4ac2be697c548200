"""A part of benchmarks/fuzz_service.py: what schemathesis makes of the OpenAPI document is never
answered with 5xx."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="pip install schemathesis")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "fuzz_service.py"


def test_no_request_is_answered_with_an_internal_error(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    ended = subprocess.run(
        [sys.executable, str(BENCHMARK), "--quick", "--json", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(out.read_text(encoding="utf-8"))["figures"]
    assert figures["errors"] == 0, ended.stdout
    assert figures["requests"] >= 300
    assert figures["routes"] >= 30
