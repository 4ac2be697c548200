"""Searches of a network in 8-bit integers from what a unified model knows: Figure 3 of UniCoMo
(ICCD 2024) in kind.

Latency over trials and over wall time of searches of the same tasks, each from nothing:

    stock     meta_schedule.tune_tasks with its own settings and the rules of processors without
              tensor instructions: with those for VNNI this TVM ends in an error
    online    tunefleet with a model that learns from this search alone
    default   tunefleet as it is: its model steers the tasks in float32, which it has learned
    shipped   tunefleet with the same model steering every task, by a card that does not tell
    unified   tunefleet with a unified model of the records in `--records`, of other networks

The unified model is trained once by `tunefleet costmodel train`, in a home of its own. Programs
are plain or by tensor instructions, side by side, but for stock's. How many tasks of the network
the model has seen is told. Winners of all sides are measured by one worker in turn, as `search.py`
does, and runs are kept in `--json OUT` as they end.

    .venv/bin/python benchmarks/tensorised_search.py --json tensorised.json
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import common
from search import stock
from searching import (
    compare,
    curve,
    keep,
    latency_of,
    ours,
    parser,
    reached,
    run,
    runs_of,
    seeds_of,
    tasks_of,
)

RECORDS = Path(__file__).resolve().parents[1] / "datasets" / "int8-epyc.parquet"
NETWORKS = ("zoo:shufflenet_v2?precision=int8",)
SIDES = ("stock", "online", "default", "shipped", "unified")
PER_TASK = 32
_NAME, _UNTOLD = "int8", "untold"
_QUICK = "zoo:tiny_cnn?precision=int8"
#: The paper's: how many times quicker the search, and the latency at equal rounds.
FASTER, LOWER = 9.3, 1.9


def train(records: Path, home: Path, quick: bool) -> None:
    """The unified model of these records, in the registry of a home."""
    command = [
        str(Path(sys.executable).parent / "tunefleet"), "costmodel", "train", str(records),
        "--name", _NAME, "--model", "unified", "--split", "by_task", "--seeds", "1",
        "--hidden", "64",
        "--epochs", "1" if quick else "30", "--home", str(home), "--quiet",
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=sys.stderr)


def forget(home: Path) -> None:
    """The shipped model in the registry of a home, with a card that does not tell what it learned:
    one that steers every task."""
    from tunefleet.core.settings import SHIPPED_MODEL
    from tunefleet.costmodel.registry import registry_of

    registry = registry_of(home)
    shipped = registry.get(SHIPPED_MODEL)
    registry.add(replace(shipped.card, name=_UNTOLD, learned=()), shipped.data())


def search(network: str, seed: str, side: str, trials: str, home: str) -> dict[str, Any]:
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SHIPPED_MODEL

    if side == "stock":
        from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

        plain = partial(PostOrderApply, sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")
        return stock(network, int(seed), int(trials), plain)
    models = {"online": "", "default": SHIPPED_MODEL, "shipped": _UNTOLD, "unified": _NAME}
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "home")
        shutil.copytree(home, own)
        return ours(
            network, int(seed), Budget(trials=int(trials)), pretrained=models[side],
            transfer=False, home=own,
        )  # fmt: skip


def known_tasks(network: str, records: Path) -> str:
    """How many tasks of a network are among those of the records."""
    import pyarrow.parquet as parquet

    from tunefleet.compiler.toolchain.programs import database_entry, load_program

    known = set(parquet.read_table(records, columns=["workload"])["workload"].to_pylist())
    hashes = [database_entry(load_program(w.task.program))[0] for w in tasks_of(network)]
    return f"{sum(one in known for one in hashes)} of {len(hashes)}"


def main(options: argparse.Namespace) -> int:
    if not options.records.is_file():
        raise common.Skip(f"no records: {options.records} is missing")
    if options.quick:
        # Stock takes minutes of it.
        options.networks, options.sides = [_QUICK], ["online", "unified"]
    started = time.time()
    kept = runs_of(options.json)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        if "unified" in options.sides:
            train(options.records, home, options.quick)
        forget(home)
        for network in options.networks:
            tasks = tasks_of(network)
            print(f"{network}: {known_tasks(network, options.records)} tasks are known", flush=True)
            weights = {w.task.task_id: w.weight for w in tasks}
            trials = (4 if options.quick else options.per_task) * len(tasks)
            for seed in seeds_of(options):
                own = kept.setdefault(f"{network} {seed} {trials}", {})
                compare(
                    __file__, own, network, options.sides,
                    partial(_words, network, seed, trials, str(home)),
                    partial(keep, options.json, started, kept),
                )  # fmt: skip
                rows += compared(network, seed, own, weights, options.sides)
                common.table(rows[-len(options.sides) :], list(rows[-1]))
    figures = {"runs": kept, "rows": rows}
    return common.finish("tensorised_search", started, figures, checks(rows), options.json)


def _words(network: str, seed: int, trials: int, home: str, side: str) -> tuple[Any, ...]:
    return network, seed, side, trials, home


def compared(
    network: str, seed: int, own: dict[str, Any], weights: dict[str, int], sides: list[str]
) -> list[dict[str, Any]]:
    """A row of each side; trials and time are those of another side to its end by those of this
    one to the same latency."""
    final = {side: latency_of(own["final"][side], weights) for side in sides}
    points = {side: curve(own[side]["points"], weights, own["final"][side]) for side in sides}
    rows = []
    for side in sides:
        row: dict[str, Any] = {
            "network": network, "seed": seed, "side": side, "trials": own[side]["trials"],
            "wall_s": own[side]["wall_s"], "final_ms": 1e3 * final[side],
            "room": points[side][0][2] / final[side] if points[side] else None,
        }  # fmt: skip
        for other in (each for each in ("stock", "online") if each in sides and each != side):
            hit = reached(points[side], final[other])
            # Of some tasks stock finds no program at all.
            lower = final[other] / final[side] if math.isfinite(final[other]) else None
            row[f"lower than {other}"] = lower
            row[f"fewer trials than {other}"] = own[other]["trials"] / hit[1] if hit else None
            row[f"less wall than {other}"] = own[other]["wall_s"] / hit[0] if hit else None
        rows.append(row)
    return [{name: row.get(name) for name in dict.fromkeys(n for r in rows for n in r)}
            for row in rows]  # fmt: skip


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    mine = [row for row in rows if row["side"] == "unified"]
    found = []
    for other in ("stock", "online"):
        for what, bound in ((f"less wall than {other}", FASTER), (f"lower than {other}", LOWER)):
            values = [row[what] or 0.0 for row in mine if what in row]
            if values:
                middle = statistics.median(values)
                found.append(common.at_least(f"unified: {what}, median", middle, bound, "aim"))
    return found


if __name__ == "__main__":
    made = parser("Searches of a network in 8-bit integers.", NETWORKS, 3)
    made.add_argument("--records", type=Path, default=RECORDS)
    made.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    made.add_argument("--per-task", type=int, default=PER_TASK, help="trials of each task")
    run(main, search, made)
