"""Sides of a comparison, each in a process of its own (`benchmarks/turns.py`)."""

import os
import subprocess
import sys
from pathlib import Path

_DRIVER = """
import sys
from turns import in_turn
sides = {
    "silent": "import time; from turns import serve; serve(lambda: time.sleep(0.01))",
    "telling": "from turns import serve; serve(lambda: sum(range(99)), {'error': 0.5})",
    "dying": "raise SystemExit('no such engine')",
}
found = in_turn({name: [sys.executable, "-c", code] for name, code in sides.items()}, 1)
print(found.told, {name: len(times) for name, times in found.rounds.items()}, found.failed)
"""


def test_sides_are_measured_whether_they_have_something_to_tell_or_not() -> None:
    benchmarks = str(Path(__file__).parents[1] / "benchmarks")
    result = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        env=os.environ | {"PYTHONPATH": benchmarks},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.strip() == (
        "{'silent': None, 'telling': {'error': 0.5}} {'silent': 1, 'telling': 1}"
        " {'dying': 'no such engine'}"
    ), result.stderr
