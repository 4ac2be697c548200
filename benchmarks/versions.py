"""This version beside another: the same command in turn, with this environment.

    .venv/bin/python benchmarks/versions.py --source OLD/src [--rounds 5] --json out.json
    .venv/bin/python benchmarks/versions.py --source OLD/src --minutes 4 --threads 2 --rounds 1

Each round gives `tunefleet tune NETWORK` to the one and to the other, in a home of its own, which
comes first in turn. Compared are the trials per second of the search, the seconds of each kind of
stage for each trial, the seconds of the whole command, and the latencies of what both deliver,
measured in turn by this version.
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
from tunefleet.core.statistics import interval, median

_OWN = Path(__file__).resolve().parents[1] / "src"
_STAGES = ("select", "build", "profile", "update")


def main(options: argparse.Namespace) -> int:
    if options.source is None:
        raise common.Skip("--source names the source of the other version")
    started = time.time()
    rounds = 1 if options.quick else options.rounds
    budget = ["--trials", str(16 if options.quick else options.trials)]
    if options.minutes is not None and not options.quick:
        budget = ["--minutes", f"{options.minutes:g}"]
    sides = {"before": options.source.resolve(), "now": _OWN}
    measured: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    artifacts: dict[str, Path] = {}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        with tempfile.TemporaryDirectory() as homes:
            for side in order:
                command = ["tune", options.network, *budget, "--threads", str(options.threads),
                           "--quiet", "--json", "-", "--home", f"{homes}/{side}"]  # fmt: skip
                figures, artifacts[side] = _tuned(sides[side], command)
                measured[side].append(figures)
            for side, latency_ms in _latencies(artifacts, options.threads).items():
                measured[side][-1]["delivered, ms"] = latency_ms
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
    found = {"network": options.network, "budget": budget, "rows": rows, "each": measured}
    return common.finish("versions", started, found, checks, options.json)


def _tuned(source: Path, arguments: list[str]) -> tuple[dict[str, float], Path]:
    started = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "tunefleet", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if ended.returncode:
        raise RuntimeError(f"{source}: {ended.stderr.strip()[-500:]}")
    told = json.loads(ended.stdout)
    result = told[0] if isinstance(told, list) else told
    wall = result["wall"]
    search_s = sum(wall[stage] for stage in _STAGES) + wall["other"]
    figures = {
        "trials/s": result["trials"] / search_s,
        **{f"{stage}, ms a trial": 1e3 * wall[stage] / result["trials"] for stage in _STAGES},
        "whole command, s": seconds,
    }
    return figures, Path(result["artifact"])


def _latencies(artifacts: dict[str, Path], threads: int) -> dict[str, float]:
    """Milliseconds of each side's artifact, measured in turn."""
    from tunefleet.artifacts.artifact import read_artifact
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.artifacts.runtime import set_threads
    from tunefleet.compiler.code.executable import time_interleaved, timer_of
    from tunefleet.compiler.frontends.examples import seeded_inputs
    from tunefleet.core.step import Rounds

    set_threads(threads)
    network = read_artifact(artifacts["now"]).network
    inputs = seeded_inputs(network.inputs, network.ranges)
    loaded = [LoadedNetwork(artifact / "module.so") for artifact in artifacts.values()]
    timers = [timer_of(each.bound(inputs)) for each in loaded]
    times = time_interleaved(timers, Rounds(32))
    return {side: 1e3 * median(seconds) for side, seconds in zip(artifacts, times, strict=True)}


if __name__ == "__main__":
    asked = common.parser("This version beside another.")
    asked.add_argument("--source", type=Path, metavar="DIR", help="the source of the other")
    asked.add_argument("--network", default="zoo:squeezenet")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--trials", type=int, default=64)
    asked.add_argument("--minutes", type=float, help="of each command, instead of trials")
    asked.add_argument("--threads", type=int, default=1)
    common.run(main, asked)
