"""What population and generations of the select stage are worth: the best program after equal time.

Each setting searches each task from nothing for the same number of seconds, several seeds, the
settings in turn. More effort per selection means fewer trials.

    .venv/bin/python benchmarks/search_effort.py --json out.json
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import common
import trial_throughput

EFFORTS = ((64, 1), (512, 4), (2048, 8))


def main(options: argparse.Namespace) -> int:
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SearchSettings
    from tunefleet.core.statistics import median

    started = time.time()
    seconds, seeds, names = options.seconds, options.seeds, ["conv3x3", "depthwise"]
    if options.quick:
        seconds, seeds, names = 3.0, 1, ["depthwise"]
    runs: list[dict[str, Any]] = []
    for seed in range(seeds):
        for name in options.task or names:
            for population, generations in EFFORTS:
                search = SearchSettings(population=population, generations=generations, seed=seed)
                found = trial_throughput.drive(name, Budget(seconds=seconds), search)
                runs.append({"task": name, "effort": f"{population} x {generations}",
                             "seed": seed, **found})  # fmt: skip
                common.table(runs[-1:], ["task", "effort", "seed", "trials", "wall_s", "best_us",
                                         "search_share"])  # fmt: skip
                sys.stdout.flush()
    rows = []
    for task, effort in dict.fromkeys((r["task"], r["effort"]) for r in runs):
        of = [r for r in runs if (r["task"], r["effort"]) == (task, effort)]
        best = [r["best_us"] for r in of]
        rows.append({
            "task": task, "effort": effort, "trials": median([r["trials"] for r in of]),
            "best_us": median(best), "from": min(best), "to": max(best),
            "search_share": median([r["search_share"] for r in of]),
        })  # fmt: skip
    print()
    common.table(rows, list(rows[0]))
    figures = {"runs": runs, "rows": rows, "seconds": seconds}
    return common.finish("search_effort", started, figures, [], options.json)


if __name__ == "__main__":
    made = common.parser("Search effort against the best program found in equal time.")
    made.add_argument("--seconds", type=float, default=40.0)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--task", action="append", help="matmul, conv3x3, depthwise")
    common.run(main, made)
