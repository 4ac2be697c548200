"""This version beside another: the same command in turn, with this environment.

    .venv/bin/python benchmarks/versions.py --source OLD/src [--rounds 5] --json out.json

Each round gives `tunefleet tune NETWORK` to the one and to the other, in a home of its own, which
comes first in turn. Compared are the trials per second of the search, the seconds of each kind of
stage for each trial, the seconds of the whole command, and the latency of what is delivered.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
from tunefleet.core.statistics import interval

_OWN = Path(__file__).resolve().parents[1] / "src"
_STAGES = ("select", "build", "profile", "update")


def main(options: argparse.Namespace) -> int:
    if options.source is None:
        raise common.Skip("--source names the source of the other version")
    started = time.time()
    rounds, trials = (1, 16) if options.quick else (options.rounds, options.trials)
    sides = {"before": options.source.resolve(), "now": _OWN}
    measured: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for side in order:
            measured[side].append(_tuned(sides[side], options.network, trials))
    rows, checks = [], []
    for name in measured["now"][0]:
        pairs = zip(measured["now"], measured["before"], strict=True)
        ratio = interval([now[name] / before[name] for now, before in pairs])
        row: dict[str, Any] = {"": name}
        for side, of in measured.items():
            row[side] = interval([each[name] for each in of]).median
        rows.append(row | {"now / before": ratio.median, "from": ratio.low, "to": ratio.high})
        # Where the interval holds 1, nothing is shown to be worse.
        worse = ratio.high if name == "trials/s" else ratio.low
        check = common.at_least if name == "trials/s" else common.at_most
        checks.append(check(f"{name}, now / before", worse, 1.0, "aim"))
    common.table(rows, list(rows[0]))
    figures = {"network": options.network, "trials": trials, "rows": rows, "each": measured}
    return common.finish("versions", started, figures, checks, options.json)


def _tuned(source: Path, network: str, trials: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "tunefleet", "tune", network, "--trials", str(trials),
                   "--threads", "1", "--quiet", "--json", "-", "--home", home]  # fmt: skip
        started = time.perf_counter()
        environment = os.environ | {"PYTHONPATH": str(source)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - started
    if ended.returncode:
        raise RuntimeError(f"{source}: {ended.stderr.strip()[-500:]}")
    told = json.loads(ended.stdout)
    result = told[0] if isinstance(told, list) else told
    wall = result["wall"]
    search_s = sum(wall[stage] for stage in _STAGES) + wall["other"]
    return {
        "trials/s": result["trials"] / search_s,
        **{f"{stage}, ms a trial": 1e3 * wall[stage] / result["trials"] for stage in _STAGES},
        "whole command, s": seconds,
        "delivered, ms": result["tuned_ms"]["median"],
    }


if __name__ == "__main__":
    asked = common.parser("This version beside another.")
    asked.add_argument("--source", type=Path, metavar="DIR", help="the source of the other")
    asked.add_argument("--network", default="zoo:squeezenet")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--trials", type=int, default=64)
    common.run(main, asked)
