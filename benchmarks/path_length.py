"""What a newcomer has to know to follow one network from the command to its artifact.

    .venv/bin/python benchmarks/path_length.py --json out.json
    .venv/bin/python benchmarks/path_length.py --source OLD/src --json before.json

Runs `tunefleet tune` for one network and for two in this process and counts the modules and
functions of the package that are called in it: all of them, and those of the threads in which
stages and steps run (what happens to one candidate, and to one network). What runs in workers is
the compiler's and the same for every design. `--source` is the source folder of another version,
with this environment.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import common

#: Rooms that do the work and are not the way to it.
_TOOLS = ("compiler", "features", "costmodel", "zoo", "report", "hardware")


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.source is not None:
        sys.path.insert(0, str(options.source.resolve()))
        os.environ["PYTHONPATH"] = sys.path[0]  # of the workers
    import tunefleet

    package = str(Path(tunefleet.__file__).parent) + os.sep
    seen: dict[bool, set[tuple[str, str]]] = {False: set(), True: set()}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(package):
            return
        # Neither the bodies of modules and classes nor comprehensions.
        if code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
            apart = threading.current_thread().name.startswith("tunefleet-")
            seen[apart].add((code.co_filename.removeprefix(package), code.co_qualname))

    from tunefleet.cli.app import run

    alone: set[tuple[str, str]] = set()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        codes = [_tuned(run, ["zoo:tiny_cnn"])]
        alone |= seen[False] | seen[True]
        codes.append(_tuned(run, ["zoo:tiny_cnn", "zoo:tiny_cnn?size=24"]))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    every = seen[False] | seen[True]
    rows = [
        _counted("the command and the scheduler", seen[False]),
        _counted("stages and steps", seen[True]),
        _counted("all", every),
        _counted("all but tools", _no_tools(every)),
        _counted("of these, for one network", _no_tools(alone)),
    ]
    common.table(rows, list(rows[0]))
    checks = [
        common.at_most("exit code of the commands", max(codes), 0, "condition", any_size=True)
    ]
    figures = {"rows": rows, "modules": sorted({file for file, _ in every})}
    return common.finish("path_length", started, figures, checks, options.json)


def _tuned(run: Callable[[list[str]], int], networks: list[str]) -> int:
    with tempfile.TemporaryDirectory() as home:
        options = ["--trials", "16", "--threads", "1", "--quiet", "--home", home]
        return run(["tune", *networks, *options])


def _no_tools(called: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(file, name) for file, name in called if file.split(os.sep)[0] not in _TOOLS}


def _counted(what: str, called: set[tuple[str, str]]) -> dict[str, Any]:
    return {"": what, "modules": len({file for file, _ in called}), "functions": len(called)}


if __name__ == "__main__":
    asked = common.parser("What a newcomer has to know to follow one network.")
    asked.add_argument("--source", type=Path, metavar="DIR", help="the source of another version")
    common.run(main, asked)
