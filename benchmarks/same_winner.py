"""Whether a search finds the same winner again: a network tuned with several seeds, each from
nothing, and the latencies of the winners of each task, measured in turn by one worker.

Where no trial of a search was faster than a task's plain schedule, the latency of that schedule
counts. The homes stay in `--folder`, if one is given: the same command goes on where it stopped.

    .venv/bin/python benchmarks/same_winner.py --network zoo:mobilenet_v2 --minutes 15 --folder F
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
import searching

if TYPE_CHECKING:
    from tunefleet.core.task import WeightedTask

#: How far latencies of the same task may be from each other to count as the same.
_SAME = 0.02


@dataclass(frozen=True)
class Search:
    """The first job of a home: its tasks, the trace of each winner, and the seconds of plain
    schedules that no trial beat."""

    tasks: list[WeightedTask]
    traces: dict[str, str]
    plain_s: dict[str, float]


def search_of(home: Path) -> Search:
    from tunefleet.store import each_job, open_store

    traces, plain_s = {}, {}
    with closing(open_store(home)) as store:
        job = next(iter(each_job(store.jobs)))
        for task_id, (winner, checks) in store.records.winners(job.job_id).items():
            if winner is not None:
                traces[task_id] = winner.candidate.trace
            elif checks and checks.get("default_s"):
                plain_s[task_id] = float(checks["default_s"])
        return Search(store.work.tasks(job.job_id), traces, plain_s)


def tune(network: str, minutes: float, seed: int, home: Path) -> None:
    """`tunefleet tune` as a user calls it; a search that was interrupted goes on."""
    command = [str(Path(sys.executable).parent / "tunefleet"), "tune", network, "--minutes",
               str(minutes), "--seed", str(seed), "--home", str(home)]  # fmt: skip
    subprocess.run(command, check=True, stdout=sys.stderr)


def rows_of(
    tasks: Sequence[WeightedTask], sides: Sequence[Mapping[str, float]]
) -> list[dict[str, Any]]:
    """A row for each task that all searches have a latency of, those of most time first."""
    rows: list[dict[str, Any]] = []
    for w in tasks:
        seconds = [side[w.task.task_id] for side in sides if w.task.task_id in side]
        if len(seconds) == len(sides):
            rows.append({"task": w.task.name[:60], "us": min(seconds) * 1e6,
                         "slowest/fastest": max(seconds) / min(seconds),
                         "share": w.weight * min(seconds)})  # fmt: skip
    whole = sum(row["share"] for row in rows)
    shares = (row | {"share": row["share"] / whole} for row in rows)
    return sorted(shares, key=lambda row: -row["share"])


def main(options: argparse.Namespace) -> int:
    started = time.time()
    network, minutes = options.network, options.minutes
    if options.quick:
        network, minutes = "zoo:tiny_cnn", 0.1
    found: list[Search] = []
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(options.seeds):
            home = (options.folder or Path(temporary)) / f"seed{seed}"
            if not (home / "artifacts").is_dir():
                tune(network, minutes, seed, home)
            found.append(search_of(home))
    traces = {str(seed): search.traces for seed, search in enumerate(found)}
    sides = searching.measured(__file__, network, traces)
    seconds = [search.plain_s | sides[str(seed)] for seed, search in enumerate(found)]
    rows = rows_of(found[0].tasks, seconds)
    common.table(rows, ["task", "us", "slowest/fastest", "share"])
    same = [row for row in rows if row["slowest/fastest"] <= 1 + _SAME]
    share = sum(row["share"] for row in same)
    print(f"{len(same)} of {len(rows)} tasks, {share:.0%} of the latency")
    checks = [
        common.at_least(f"{network}: tasks within {_SAME:.0%}", len(same) / len(rows), 0.95, "aim")
    ]
    figures = {"network": network, "minutes": minutes, "seeds": options.seeds, "rows": rows}
    return common.finish("same_winner", started, figures, checks, options.json)


def made() -> argparse.ArgumentParser:
    parser = common.parser("Winners of searches with other seeds.")
    parser.add_argument("--network", default="zoo:mobilenet_v2")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the homes stay")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    words = made().parse_args().worker
    if words:
        searching.work(searching.ours, *words)
    else:
        common.run(main, made())
