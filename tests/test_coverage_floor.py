"""Runs a small project with this one's hooks: one of its two branches is taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

PYPROJECT = """
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["checks"]
[tool.coverage.run]
branch = true
source = ["src/tunefleet"]
[tool.tunefleet.coverage]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("tests", "checks", "src/tunefleet/core"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    for name in ("coverage_floor.py", "without_compiler.py"):
        shutil.copy(ROOT / "checks" / name, tmp_path / "checks")
    # A package with no code of its own has no branch, and so none to take.
    for folder in ("src/tunefleet", "src/tunefleet/core"):
        (tmp_path / folder / "__init__.py").touch()
    module = "def half(value):\n    if value:\n        return 1\n    return 2\n"
    (tmp_path / "src/tunefleet/core/part.py").write_text(module)
    test = "from tunefleet.core.part import half\ndef test_half():\n    assert half(1) == 1\n"
    (tmp_path / "tests" / "test_part.py").write_text(test)
    return tmp_path


def run(project: Path, floors: str, *options: str) -> subprocess.CompletedProcess[str]:
    (project / "pyproject.toml").write_text(PYPROJECT + "tunefleet = 0\n" + floors)
    environment = os.environ | {"PYTHONPATH": str(project / "src")}
    command = [sys.executable, "-m", "pytest", "--cov", "--cov-report=", *options]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


def test_a_room_below_its_floor_fails_the_run(project: Path) -> None:
    ended = run(project, "core = 51")
    assert ended.returncode == 1
    assert "50.0       51  BELOW" in ended.stdout
    assert "1 passed" in ended.stdout.splitlines()[-1]


def test_a_room_without_a_floor_fails_the_run(project: Path) -> None:
    ended = run(project, "scheduler = 51")
    assert ended.returncode == 1
    assert "50.0 no floor  BELOW" in ended.stdout


def test_a_room_at_its_floor_passes(project: Path) -> None:
    ended = run(project, "core = 50")
    assert ended.returncode == 0
    assert "BELOW" not in ended.stdout


def test_a_part_of_the_tests_has_no_floor(project: Path) -> None:
    assert run(project, "core = 51", "tests/test_part.py").returncode == 0


def test_rooms_may_have_a_floor_together(project: Path) -> None:
    assert run(project, '"core store" = 50').returncode == 0
    ended = run(project, '"core store" = 51')
    assert ended.returncode == 1
    assert "core store" in ended.stdout
