"""What a newcomer has to know to follow one network from the command to its artifact.

    .venv/bin/python benchmarks/path_length.py --json out.json
    .venv/bin/python benchmarks/path_length.py --source OLD/src --json before.json

Runs `tunefleet tune zoo:tiny_cnn` in this process and counts the modules and functions of the
package that are called in it: all of them, and those of the threads in which stages and steps run
(what happens to one candidate, and to one network). What runs in workers is the compiler's and the
same for every design. `--source` is the source folder of another version, with this environment.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
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
    import tunefleet

    package = str(Path(tunefleet.__file__).parent) + os.sep
    seen: dict[bool, set[tuple[str, str]]] = {False: set(), True: set()}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(package):
            apart = threading.current_thread().name.startswith("tunefleet-")
            seen[apart].add((file.removeprefix(package), frame.f_code.co_qualname))

    from tunefleet.cli.app import run

    with tempfile.TemporaryDirectory() as home:
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            code = run(["tune", "zoo:tiny_cnn", "--trials", "16", "--threads", "1", "--quiet",
                        "--home", home])  # fmt: skip
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    every = seen[False] | seen[True]
    rows = [
        _counted("the command and the scheduler", seen[False]),
        _counted("stages and steps", seen[True]),
        _counted("all", every),
        _counted("all but tools", {f for f in every if f[0].split(os.sep)[0] not in _TOOLS}),
    ]
    common.table(rows, list(rows[0]))
    checks = [common.at_most("exit code of the command", code, 0, "condition")]
    figures = {"rows": rows, "modules": sorted({file for file, _ in every})}
    return common.finish("path_length", started, figures, checks, options.json)


def _counted(what: str, called: set[tuple[str, str]]) -> dict[str, Any]:
    return {"": what, "modules": len({file for file, _ in called}), "functions": len(called)}


if __name__ == "__main__":
    asked = common.parser("What a newcomer has to know to follow one network.")
    asked.add_argument("--source", type=Path, metavar="DIR", help="the source of another version")
    common.run(main, asked)
