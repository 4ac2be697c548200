"""Searches of a network in 8-bit integers from what the shipped unified model knows: Figure 3 of
UniCoMo (ICCD 2024) in kind.

Latency over trials and over wall time of searches of the same tasks, each from nothing:

    stock     meta_schedule.tune_tasks with its own settings and the rules of processors without
              tensor instructions: with those for VNNI this TVM ends in an error
    online    tunefleet with a model that learns from this search alone
    unified   tunefleet as it is: with the unified model that comes with it

Programs are plain or by tensor instructions, side by side, but for stock's. How many tasks of the
network are among the records that the model learned from is told. Winners of all sides are measured
by one worker in turn, as `search.py` does, and runs are kept in `--json OUT` as they end.

    .venv/bin/python benchmarks/tensorised_search.py --json tensorised.json
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
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

DATASETS = Path(__file__).resolve().parents[1] / "datasets"
RECORDS = [DATASETS / "int8-epyc.parquet", DATASETS / "tensor-xeon.parquet"]
NETWORKS = ("zoo:shufflenet_v2?precision=int8",)
SIDES = ("stock", "online", "unified")
PER_TASK = 32
_QUICK = "zoo:tiny_cnn?precision=int8"
#: The paper's: how many times quicker the search, and the latency at equal rounds.
FASTER, LOWER = 9.3, 1.9


def search(network: str, seed: str, side: str, trials: str) -> dict[str, Any]:
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SHIPPED_MODEL

    if side == "stock":
        from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

        plain = partial(PostOrderApply, sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")
        return stock(network, int(seed), int(trials), plain)
    models = {"online": "", "unified": SHIPPED_MODEL}
    return ours(
        network, int(seed), Budget(trials=int(trials)), pretrained=models[side], transfer=False
    )


def known_tasks(network: str, records: list[Path]) -> str:
    """How many tasks of a network are among those of the records."""
    import pyarrow.parquet as parquet

    from tunefleet.compiler.toolchain.programs import database_entry, load_program

    tables = [parquet.read_table(path, columns=["workload"]) for path in records]
    known = {name for table in tables for name in table["workload"].to_pylist()}
    hashes = [database_entry(load_program(w.task.program))[0] for w in tasks_of(network)]
    return f"{sum(one in known for one in hashes)} of {len(hashes)}"


def main(options: argparse.Namespace) -> int:
    missing = [path for path in options.records if not path.is_file()]
    if missing:
        raise common.Skip(f"no records: {missing[0]} is missing")
    if options.quick:
        # Stock takes minutes of it.
        options.networks, options.sides = [_QUICK], ["online", "unified"]
    started = time.time()
    kept = runs_of(options.json)
    rows: list[dict[str, Any]] = []
    for network in options.networks:
        tasks = tasks_of(network)
        print(f"{network}: {known_tasks(network, options.records)} tasks are known", flush=True)
        weights = {w.task.task_id: w.weight for w in tasks}
        trials = (4 if options.quick else options.per_task) * len(tasks)
        for seed in seeds_of(options):
            own = kept.setdefault(f"{network} {seed} {trials}", {})
            compare(
                __file__, own, network, options.sides,
                partial(_words, network, seed, trials), partial(keep, options.json, started, kept),
            )  # fmt: skip
            rows += compared(network, seed, own, weights, options.sides)
            common.table(rows[-len(options.sides) :], list(rows[-1]))
    figures = {"runs": kept, "rows": rows}
    return common.finish("tensorised_search", started, figures, checks(rows), options.json)


def _words(network: str, seed: int, trials: int, side: str) -> tuple[Any, ...]:
    return network, seed, side, trials


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
    made.add_argument("--records", type=Path, nargs="+", default=RECORDS)
    made.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    made.add_argument("--per-task", type=int, default=PER_TASK, help="trials of each task")
    run(main, search, made)
