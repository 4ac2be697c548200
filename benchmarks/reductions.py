"""Global averages: random programs with and without channels inside the reduction.

For every reduction for which tunefleet has a sketch of its own, the best of `--programs` random
programs of MetaSchedule's sketches and of as many of that one, all measured in turn by one worker.

    .venv/bin/python benchmarks/reductions.py --json reductions.json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from statistics import geometric_mean
from typing import Any

import numpy as np

import common
from searching import tasks_of

REDUCTIONS = ("mean", "sum", "max")
NETWORKS = ("zoo:squeezenet", "zoo:efficientnet_b0", "zoo:mobilenet_v3_large")


def main(options: argparse.Namespace) -> int:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.workers.machine import Machine

    started = time.time()
    count = 4 if options.quick else options.programs
    rows: dict[str, dict[str, Any]] = {}
    target = native_target()
    with Machine(machine_layout().layout) as machine:
        for network in NETWORKS[:1] if options.quick else NETWORKS:
            for w in tasks_of(network):
                if w.task.name.split("+")[0] in REDUCTIONS and w.task.task_id not in rows:
                    row = _row(machine, target, network, w.task, count)
                    rows |= {w.task.task_id: row} if row else {}
    found = list(rows.values())
    common.table(found, list(found[0]))
    mean = geometric_mean(row["ratio"] for row in found)
    print(f"geometric mean of {len(found)} tasks: {mean:.3f}")
    return common.finish("reductions", started, {"rows": found}, [], options.json)


def _row(machine: Any, target: Any, network: str, task: Any, count: int) -> dict[str, Any] | None:
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.trial import Built, Measurement
    from tunefleet.search.decisions import DecisionSpace
    from tunefleet.stages import work

    space = DecisionSpace.of(sketches_of(task.program, target))
    rng = np.random.default_rng(0)
    own = [
        i for i, sketch in enumerate(space.sketches)
        if any(each[0] == "Reorder" for each in sketch.instructions)
    ]  # fmt: skip
    if not own:
        return None
    population = space.sample(100 * count, rng).distinct()
    mine = np.isin(population.sketch, own)
    sides = ["MetaSchedule's", "tunefleet's"]
    built: list[tuple[str, Built]] = []
    with tempfile.TemporaryDirectory() as folder:
        for side, rows in zip(sides, (~mine, mine), strict=True):
            for trace in space.traces(population.take(np.flatnonzero(rows)[:count])):
                made = machine.host.call(
                    work.build_candidate, task.program, target, f"w-{len(built)}", trace, folder,
                    timeout_s=60,
                )  # fmt: skip
                if isinstance(made, Built):
                    built.append((side, made))
        results = machine.device.call(
            work.profile_interleaved, [b for _, b in built], TuneSettings().measure, timeout_s=600
        )
    best: dict[str, float] = {}
    for (side, _), result in zip(built, results, strict=True):
        if isinstance(result, Measurement):
            best[side] = min(result.latency_s, best.get(side, float("inf")))
    row: dict[str, Any] = {"network": network, "task": task.name, "shapes": task.shapes}
    row |= {f"{side}, us": 1e6 * best[side] for side in sides}
    return row | {"ratio": best[sides[1]] / best[sides[0]]}


if __name__ == "__main__":
    made = common.parser("Global averages with and without channels inside the reduction.")
    made.add_argument("--programs", type=int, default=24, help="of each side and task")
    common.run(main, made)
