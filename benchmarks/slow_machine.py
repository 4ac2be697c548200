"""How long commands take beyond their budgets on a slower machine than this one.

Files of other packages' networks (`engines_networks.py`) are tuned by `tunefleet tune` from
nothing, while all its processes are frozen for a part of every 10 ms: imports, builds, programs and
measurements take longer alike. Needs root and control groups of version 2. Latencies say nothing:
programs are interrupted in the middle.

    pip install -e ".[test,engines]"
    python benchmarks/slow_machine.py --folder slow --speed 0.5 --network resnet50
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import common
import engines
import engines_rows
from engines_files import network_file

_GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_PERIOD_S = 0.01
_PAIRS = 5
#: Few tasks with large products, and a hundred tasks.
_NETWORKS = ("resnet50", "maxxvitv2_rmlp_large")


@contextmanager
def slowed(speed: float) -> Iterator[Sequence[str]]:
    """What to put before a command so that it runs at `speed` times this machine's speed."""
    root = next((each for each in _GROUPS if (each / "cgroup.procs").exists()), None)
    if root is None or not os.access(root, os.W_OK):
        raise common.Skip("processes cannot be frozen: no control groups that may be written")
    group = root / f"slow-machine-{os.getpid()}"
    group.mkdir()
    over = threading.Event()
    thread = threading.Thread(target=_freeze, args=(group, speed, over))
    thread.start()
    try:
        yield "sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")
    finally:
        over.set()
        thread.join()
        # The command's workers end after it.
        while "populated 1" in (group / "cgroup.events").read_text(encoding="utf-8"):
            time.sleep(_PERIOD_S)
        group.rmdir()


def _freeze(group: Path, speed: float, over: threading.Event) -> None:
    with (group / "cgroup.freeze").open("wb", buffering=0) as switch:
        while not over.is_set():
            time.sleep(_PERIOD_S * speed)
            switch.write(b"1")
            time.sleep(_PERIOD_S * (1 - speed))
            switch.write(b"0")


def _slowdown(speed: float) -> float:
    """How much longer one core takes for the same work, the median of pairs."""
    work = [sys.executable, "-c", "sum(i * i for i in range(20_000_000))"]
    ratios = []
    with slowed(speed) as before:
        for _ in range(_PAIRS):
            seconds = []
            for command in (work, [*before, *work]):
                started = time.perf_counter()
                subprocess.run(command, check=True)
                seconds.append(time.perf_counter() - started)
            ratios.append(seconds[1] / seconds[0])
    return median(ratios)


def main(options: argparse.Namespace) -> int:
    started = time.time()
    figures = {"times longer": round(_slowdown(options.speed), 2)}
    minutes = 0.5 if options.quick else options.minutes
    checks = []
    for name in ["crnn"] if options.quick else (options.network or _NETWORKS):
        file, _ = network_file(name, (options.folder / name).resolve())
        shutil.rmtree(file.parent / "home", ignore_errors=True)  # a job that is there would go on
        with slowed(options.speed) as before:
            tuned = engines.tune(file, minutes, options.threads, before=before)
        beyond = tuned["command_s"] / 60 / minutes - 1
        of = f"{name}, {len(tuned['tasks'])} tasks: beyond its budget"
        checks.append(common.at_most(of, beyond, engines_rows.BEYOND, "condition"))
        figures[name] = tuned["command_s"]
    return common.finish("slow_machine", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Commands beyond their budgets at a part of this machine's speed.")
    made.add_argument("--folder", type=Path, default=Path("slow"), help="files and homes")
    made.add_argument("--network", action="append", help=f"by default {', '.join(_NETWORKS)}")
    made.add_argument("--speed", type=float, default=0.5, help="0.5: half as fast")
    made.add_argument("--minutes", type=float, default=4.0, help="budget of each search")
    made.add_argument("--threads", type=int, help="by default one for each physical core")
    common.run(main, made)
