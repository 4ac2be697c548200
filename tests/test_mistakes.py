"""A bug of ours, wherever it is, ends as an internal error: never as a failed trial, as a file's
fault or as nothing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tunefleet

pytestmark = pytest.mark.tvm

SOURCE = Path(tunefleet.__file__).parent
TUNE = ["tune", "zoo:tiny_cnn", "--trials", "24", "--threads", "1", "--quiet"]

#: A function of every stage and step, in the module where it stands.
FUNCTIONS = {
    "import": ("compiler/frontends/zoo_.py", "load"),
    "graph": ("compiler/graph.py", "prepare"),
    "select": ("compiler/select.py", "select"),
    "replay": ("compiler/replay.py", "replay"),
    "build": ("compiler/build.py", "compile_module"),
    "profile": ("compiler/profile.py", "profile_candidate"),
    "reference": ("compiler/reference.py", "measure"),
    "update": ("compiler/guide.py", "learn"),
    "finalists": ("compiler/profile.py", "profile_interleaved"),
    "check": ("compiler/profile.py", "check_output"),
    "compile": ("compiler/executable.py", "save_network"),
    "run": ("artifacts/network.py", "run"),
    "measure": ("compiler/executable.py", "time_interleaved"),
    "publish": ("artifacts/artifact.py", "write_artifact"),
    "report": ("report/html.py", "render_html"),
}


def with_bug(folder: Path, file: str, function: str) -> None:
    """A copy of the package in which a function raises what a misspelt name does."""
    package = folder / "tunefleet"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    path = package / file
    tree = ast.parse(path.read_text())
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    assert found, f"{file} has no function {function}"
    for node in found:
        node.body.insert(0, ast.parse("os_path_that_is_not_there.attribute").body[0])
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_bug_in_any_stage_is_told_as_ours(name: str, tmp_path: Path) -> None:
    with_bug(tmp_path / "source", *FUNCTIONS[name])
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "source"),
        "TUNEFLEET_HOME": str(tmp_path / "home"),
    }
    code = "import sys; from tunefleet.cli import main; sys.argv[0] = 'tunefleet'; main()"
    told = subprocess.run(
        [sys.executable, "-c", code, *TUNE],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    last = told.stderr.strip().splitlines()[-1]
    assert told.returncode == 70, told.stderr
    assert "internal error" in last
    assert "os_path_that_is_not_there" in last
    (written,) = (tmp_path / "home" / "bugs").iterdir()
    assert str(written) in last
    assert FUNCTIONS[name][0] in written.read_text()
