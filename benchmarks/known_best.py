"""What `tunefleet build` takes for networks of which every record is known, cold and warm, by step.

Networks are tuned with a few trials of each task first, in one home: their records are what is
known. Then a home of its own for each network imports them, and builds the network twice, each time
by a command of its own: cold, with the records alone, and warm, with what the first build left.
A search is avoided for each task with a verified program, and before a network's own search for
each that a network before it has too.

    python benchmarks/known_best.py [--trials N] [--networks NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

NETWORKS = (
    "resnet50", "resnet18", "mobilenet_v2", "squeezenet", "shufflenet_v2", "densenet121",
    "efficientnet_b0", "bert_tiny", "vit_tiny", "mixer_small",
)  # fmt: skip
SMALL = ("tiny_cnn", "tiny_cnn?batch=2")
COLUMNS = [
    "network", "tasks", "known %", "from others", "cold s", "import s", "check s", "compile s",
    "verify s", "publish s", "warm s",
]  # fmt: skip


def command(home: Path, *words: str) -> tuple[dict[str, Any], float]:
    """The JSON of a command, and what it took; a process of its own, as a user starts it."""
    started = time.perf_counter()
    line = [sys.executable, "-m", "tunefleet", *words, "--home", str(home), "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    value = json.loads(done.stdout)
    return (value[0] if isinstance(value, list) else value), seconds


def known_tasks(home: Path) -> set[str]:
    """The tasks with a verified program."""
    if not home.is_dir():
        return set()
    listing, _ = command(home, "records", "best")
    return {record["task_id"] for record in listing["records"]}


def measured(name: str, records: Path, folder: Path, trials: int) -> dict[str, Any]:
    """A network's searches, then its builds."""
    network, of_others = f"zoo:{name}", known_tasks(records)
    tuned, tune_s = command(
        records, "tune", network, "--trials-per-task", str(trials), "--threads", "1",
        "--first-batch", str(trials), "--quiet",
    )  # fmt: skip
    home = folder / name.replace("?", "-").replace("=", "-")
    _, bring_s = command(home, "records", "import", str(records), "--threads", "1")
    cold, cold_s = command(home, "build", network, "--threads", "1", "--quiet")
    warm, warm_s = command(home, "build", network, "--threads", "1", "--quiet")
    ids = {task["task_id"] for task in tuned["tasks"]}
    wall = {f"{step} s": seconds for step, seconds in cold["wall"].items()}
    return {
        "network": name,
        "tasks": len(ids),
        "known": cold["reused"],
        "known %": 100 * (cold["known_share"] or 0.0),
        "from others": len(ids & of_others),
        "tune s": tune_s,
        "bring s": bring_s,
        "cold s": cold_s,
        **wall,
        "warm s": warm_s,
        "same": cold["artifact"] == warm["artifact"],
    }


def main(options: argparse.Namespace) -> int:
    started = time.time()
    names = SMALL if options.quick else options.networks
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = []
        for name in names:
            rows.append(measured(name, folder / "records", folder, options.trials))
            common.table(rows[-1:], COLUMNS)
    print()
    common.table(rows, COLUMNS)
    tasks, known = (sum(row[name] for row in rows) for name in ("tasks", "known"))
    others = sum(row["from others"] for row in rows)
    of_time = [column for column in COLUMNS if column.endswith(" s")]
    steps = {name: statistics.median(row[name] for row in rows) for name in of_time}
    figures = {
        "rows": rows,
        "median seconds": steps,
        "searches avoided": known / tasks,
        "searches avoided by networks before": others / tasks,
    }
    print(f"\nsearches avoided: {known} of {tasks} tasks have a verified program")
    print(f"before their own search: {others} of {tasks}, by the networks tuned before")
    slowest, least = max(row["warm s"] for row in rows), min(row["known %"] for row in rows)
    same = sum(row["same"] for row in rows)
    checks = [
        common.at_most("slowest warm build in seconds", slowest, 5, "condition"),
        common.at_least("builds found again", same, len(rows), "condition", any_size=True),
        common.at_least("least share of a latency that is known", least / 100, 0.5, "aim"),
    ]
    return common.finish("known_best", started, figures, checks, options.json)


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--trials", type=int, default=4, help="trials of each task")
    common.run(main, parser)
