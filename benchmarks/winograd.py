"""Convolutions of 3x3 in Winograd's form beside the direct one.

For every task that has both forms, the best of `--programs` random programs of each, measured in
turn by one worker with weights as cold as in the network, and what the direct form would take at
the measured peak: no search can make it faster than that.

    .venv/bin/python benchmarks/winograd.py --json winograd.json
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

NETWORKS = ("zoo:resnet50", "zoo:squeezenet", "zoo:vgg16")
_FORMS = ("direct", "winograd")


def main(options: argparse.Namespace) -> int:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.stages import work
    from tunefleet.stages.weights import weights_of
    from tunefleet.workers.machine import Machine

    started = time.time()
    count = 4 if options.quick else options.programs
    rows: dict[str, dict[str, Any]] = {}
    target = native_target(options.threads)
    with Machine(machine_layout(options.threads).layout) as machine:
        measured = machine.device.call(work.peak_gflops, target, str(machine.scratch))
        peak = measured if isinstance(measured, float) else float("nan")
        for network in NETWORKS[:1] if options.quick else NETWORKS:
            tasks = tasks_of(network)
            weights = weights_of(tasks, machine.host, 60)
            for w in tasks:
                if w.task.operator == "conv2d" and w.task.task_id not in rows:
                    row = _row(machine, target, w.task, weights[w.task.task_id], count)
                    if row:
                        limit = 1e-3 * w.task.flops / peak
                        row |= {"direct at the peak, us": limit,
                                "winograd / that": row["winograd, us"] / limit}  # fmt: skip
                        rows[w.task.task_id] = {"network": network} | row
                        print(rows[w.task.task_id], flush=True)
    found = list(rows.values())
    common.table(found, list(found[0]))
    for ratio in ("winograd / direct", "winograd / that"):
        mean = geometric_mean(row[ratio] for row in found)
        print(f"{ratio}, geometric mean of {len(found)} tasks: {mean:.3f}")
    return common.finish("winograd", started, {"rows": found, "peak": peak}, [], options.json)


def _row(machine: Any, target: Any, task: Any, weights: Any, count: int) -> dict[str, Any] | None:
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.core.forms import is_winograd
    from tunefleet.core.ids import canonical_json
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.trial import Built, Measurement
    from tunefleet.search.decisions import DecisionSpace
    from tunefleet.stages import work

    space = DecisionSpace.of(sketches_of(task.program, target))
    of_winograd = [is_winograd(canonical_json(sketch.instructions)) for sketch in space.sketches]
    if not any(of_winograd):
        return None
    population = space.sample(10 * count, np.random.default_rng(0)).distinct()
    forms = np.array(of_winograd)[population.sketch]
    of_form = [np.flatnonzero(forms == form)[:count] for form in (False, True)]
    sides = [name for name, rows in zip(_FORMS, of_form, strict=True) for _ in rows]
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        traces = space.traces(population.take(np.concatenate(of_form)))
        programs = [
            (task.program, target, f"w-{i}", trace, folder) for i, trace in enumerate(traces)
        ]
        made = machine.host.map(work.build_candidate, programs, 60)
        built = [
            (side, each) for side, each in zip(sides, made, strict=True) if isinstance(each, Built)
        ]
        results = machine.device.call(
            work.profile_interleaved, [b for _, b in built], TuneSettings().measure, weights,
            timeout_s=600,
        )  # fmt: skip
    for (side, _), result in zip(built, results, strict=True):
        if isinstance(result, Measurement):
            best[side] = min(result.latency_s, best.get(side, float("inf")))
    row: dict[str, Any] = {"task": task.name, "shapes": task.shapes}
    row |= {f"{side}, us": 1e6 * best[side] for side in _FORMS}
    return row | {"winograd / direct": best["winograd"] / best["direct"]}


if __name__ == "__main__":
    made = common.parser("Winograd's form of convolutions beside the direct one.")
    made.add_argument("--programs", type=int, default=48, help="of each form and task")
    made.add_argument("--threads", type=int, help="by default one for each physical core")
    common.run(main, made)
