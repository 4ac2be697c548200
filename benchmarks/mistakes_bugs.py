"""Bugs put into a copy of the package, and how a command ends that meets one."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tunefleet

SOURCE = Path(tunefleet.__file__).parent
#: What every error says that is put into the package.
MARK = "put there by the mutation benchmark"
#: Each is a statement, as a bug of its kind would be.
BUGS = {
    "ValueError": f"raise ValueError({MARK!r})",
    "ValueError of unpacking": f"a_, b_ = ({MARK!r},)",
    "RuntimeError": f"raise RuntimeError({MARK!r})",
    "OSError": f"raise OSError({MARK!r})",
    "OSError, bad descriptor": "__import__('os').close(-1)",
    "RecursionError": f"raise RecursionError({MARK!r})",
    "KeyError": f"{{}}[{MARK!r}]",
    "IndexError": "[].pop()",
    "TypeError": f"{MARK!r} + 1",
    "AttributeError": "None.attribute",
    "NameError": "name_that_is_not_there",
    "AssertionError": f"assert not {MARK!r}",
    "ZeroDivisionError": "1 // 0",
    "UnicodeDecodeError": "b'\\xff'.decode()",
    "TypeError in json": "__import__('json').dumps(object())",
    "JSONDecodeError in json": "__import__('json').loads('{')",
    "ValueError in numpy": "__import__('numpy').zeros(2).reshape(3)",
    "OperationalError in sqlite3": "__import__('sqlite3').connect(':memory:').execute('nothing')",
    "ProgrammingError in sqlite3": (
        "__import__('sqlite3').connect(':memory:').execute('SELECT ?', ())"
    ),
}

_MAIN = "import sys; from tunefleet.cli import main; sys.argv[0] = 'tunefleet'; main()"


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    seconds: float
    said: str
    #: Below the home: what a report of a bug needs.
    written: str


def with_bug(folder: Path, file: str, name: str, statement: str, line: int | None = None) -> None:
    """A copy of the package in `folder`, in which a function begins with a statement.

    `line` tells functions of one name apart: where the function begins, with its decorators."""
    package = folder / "tunefleet"
    shutil.copytree(SOURCE, package)  # what Python made of it holds for the copy
    path = package / file
    tree = ast.parse(path.read_text())
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == name
        and line in (None, min([node.lineno, *(d.lineno for d in node.decorator_list)]))
    ]
    if not found:
        raise ValueError(f"{file} has no function {name}")
    for node in found:
        node.body.insert(0, ast.parse(statement).body[0])
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)))


def run(source: Path, home: Path, command: Sequence[str], limit_s: float) -> Ended:
    """Runs a command of the package in `source`; -1 is the code of one that met its limit."""
    environment = {**os.environ, "PYTHONPATH": str(source), "TUNEFLEET_HOME": str(home)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=home.parent,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        code = -1
    bugs = home / "bugs"
    written = [file.read_text() for file in bugs.iterdir()] if bugs.is_dir() else []
    return Ended(code, time.monotonic() - started, said, "\n".join(written))


def faults_of(ended: Ended, most_s: float) -> list[str]:
    """What is wrong with how a command ended that met a bug."""
    faults = []
    if ended.code == -1:
        faults.append("hangs")
    elif ended.code != 70:
        faults.append(f"exit {ended.code}")
    if ended.seconds > most_s:
        faults.append(f"{ended.seconds:.0f} s")
    # TVM may complain from C++ of what was left half done, as the process ends.
    lines = [line for line in ended.said.splitlines() if line.startswith("internal error: ")]
    if ended.code == 70 and len(lines) != 1:
        faults.append(f"{len(lines)} lines of an internal error")
    if "Traceback" in ended.said:
        faults.append("a traceback")
    return faults
