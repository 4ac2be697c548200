"""The functions of the package that a command runs, in all its processes and threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mistakes_bugs import _MAIN, SOURCE

#: What reports a bug cannot report its own; without it nothing starts.
_REPORTING = ("errors.py", "cli/__init__.py", "cli/outcome.py", "cli/app.py")

#: Python prints what a hook of its own raises, and goes on.
_HOOKS = ("_forked",)

#: Python runs it first in every process. Workers end by SIGKILL: each function is written at once.
_TRACER = """
import json, os, sys, threading, time

PACKAGE = os.environ["MISTAKES_PACKAGE"]
LIBRARIES = {"tvm", "tvm_ffi", "torch", "onnxruntime"}
COMMAND = int(os.environ.setdefault("MISTAKES_PID", str(os.getpid())))
log = os.open(os.environ["MISTAKES_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen = set()


def called(frame, event, argument):
    code = frame.f_code
    if event != "call" or id(code) in seen:
        return
    seen.add(id(code))
    if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
        return
    callers, caller = [], frame.f_back
    while caller is not None:
        callers.append(caller)
        caller = caller.f_back
    for each in (frame, *callers):
        own = each.f_code.co_filename.startswith(PACKAGE)
        if own and each.f_code.co_name == "<module>":
            return  # it runs as the package is imported
        if own and each.f_code.co_qualname == "_reading.<locals>.read":
            return  # a row is parsed: named as what may fail for the file's sake
    file = code.co_filename[len(PACKAGE):]
    line = [time.time(), file, code.co_name, code.co_firstlineno, role_of(callers)]
    os.write(log, (json.dumps(line) + "\\n").encode())


def role_of(callers):
    if any(each.f_code.co_name == "run_initializer" for each in callers):
        return "initialiser"
    by = next((c for c in callers if not c.f_code.co_filename.startswith("<")), None)
    if by is not None and str(by.f_globals.get("__name__")).partition(".")[0] in LIBRARIES:
        return "callback"
    if os.getpid() != COMMAND:
        return "worker"
    here = threading.current_thread() is threading.main_thread()
    return "command" if here else "thread"


sys.setprofile(called)
threading.setprofile(called)
"""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A function by the file below the package and its first line; `role`: where it ran first, in
    the command itself, a thread of it, a worker, as its initialiser, or called back by a library.
    """

    file: str
    line: int
    name: str
    role: str


def places_of(home: Path, command: Sequence[str], folder: Path) -> list[Place]:
    """The functions that a command runs, in the order of their first calls."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_TRACER)
    log = folder / "calls"
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "TUNEFLEET_HOME": str(home),
        "MISTAKES_PACKAGE": f"{SOURCE}{os.sep}",
        "MISTAKES_LOG": str(log),
    }
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, *command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=home.parent,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ends with {done.returncode}: {done.stderr}")
    places: dict[tuple[str, int], Place] = {}
    for call in sorted(map(json.loads, log.read_text().splitlines())):
        _, file, name, line, role = call
        if file not in _REPORTING and name not in _HOOKS:
            places.setdefault((file, line), Place(file, line, name, role))
    return list(places.values())
