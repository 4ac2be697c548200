"""A part of the import corpus, a minute of it: networks that others made arrive and compute what
they did. All of it: `benchmarks/import_corpus.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "import_corpus.py"
DELIVERED = {"whole", "segments"}


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.timeout(1200)
@pytest.mark.long
def test_networks_of_other_packages_arrive(tmp_path):
    command = [sys.executable, str(BENCHMARK), "--quick", "--folder", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--json", str(tmp_path / "out.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    # What torch's own exporter refuses is no file that anybody has.
    networks = [row for row in figures["transformers"] if row["outcome"] != "not exported"]
    tests = figures["nodes"]
    assert len(networks) >= 1
    assert len(tests) >= 25
    for row in networks:
        assert row["outcome"] in DELIVERED, row
    counted = [row for row in tests if row["outcome"] != "left out"]
    failed = [row for row in counted if row["outcome"] == "failed"]
    assert len(failed) <= len(counted) // 10, failed
