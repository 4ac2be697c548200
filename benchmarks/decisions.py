"""Programs as arrays of decisions: how fast, and whether they are the ones MetaSchedule makes.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/decisions.py --json out.json

For every task of the networks: are candidates of MetaSchedule's random search programs of the
space, do they keep their id, how many random programs does TVM reject, and CPU time of it all.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import common

NETWORKS = [
    "zoo:tiny_cnn",
    "zoo:squeezenet?size=64",
    "zoo:bert_tiny?size=16",
    "zoo:mobilenet_v2?size=64",
]
POPULATION = 2048
COLUMNS = [
    "network", "tasks", "sketches", "most_choices", "programs", "rejected", "as_picked",
    "candidates", "read", "same_id", "open_s", "replay_ms", "breed_ms",
]  # fmt: skip


def main(options: argparse.Namespace) -> int:
    started = time.time()
    rows = [_network(n, options.programs) for n in NETWORKS[: 1 if options.quick else None]]
    common.table(rows, COLUMNS)
    read = sum(r["read"] for r in rows) / sum(r["candidates"] for r in rows)
    same = sum(r["same_id"] for r in rows) / sum(r["read"] for r in rows)
    checks = [
        common.at_least("share of MetaSchedule's candidates read", read, 0.99, "condition"),
        common.at_least("of these, share with the same id", same, 1.0, "condition"),
        common.at_most(
            f"slowest of sample, mutate, cross of {POPULATION}, ms",
            max(r["breed_ms"] for r in rows), 50.0, "condition",
        ),
    ]  # fmt: skip
    return common.finish("decisions", started, {"rows": rows}, checks, options.json)


def _network(network: str, programs: int) -> dict[str, Any]:
    from tunefleet.compiler.host import native_target
    from tunefleet.fleet.network_work import import_network

    target = native_target(1)
    tasks = import_network(network, target)[2]
    found = [_task(weighted.task.program, target, programs) for weighted in tasks]
    totals = {key: sum(row[key] for row in found) for key in found[0]}
    return {
        "network": network,
        "tasks": len(tasks),
        **totals,
        "most_choices": max(row["most_choices"] for row in found),
        "open_s": max(row["open_s"] for row in found),
        "replay_ms": totals["replay_ms"] / len(found),
        "breed_ms": max(row["breed_ms"] for row in found),
    }


def _task(program: str, target: Any, programs: int) -> dict[str, Any]:
    from tunefleet.compiler.decisions import DecisionSpace
    from tunefleet.compiler.programs import program_id, trace_text
    from tunefleet.compiler.select import SelectRequest, select
    from tunefleet.core.settings import SearchSettings

    rng = np.random.default_rng(0)
    space, open_s = _timed(lambda: DecisionSpace.of(program, target))
    population, sample_s = _timed(lambda: space.sample(POPULATION, rng))
    mutated, mutate_s = _timed(lambda: space.mutate(population, rng))
    crossed, cross_s = _timed(lambda: space.cross(mutated, population, rng))
    some = crossed.take(np.arange(programs))
    schedules, replay_s = _timed(lambda: [space.replay(p) for p in some])
    back = [space.read(trace_text(s.trace)) if s is not None else None for s in schedules]
    request = SelectRequest(program, target, SearchSettings(), batch=programs, seed=3)
    candidates = select(request, None).candidates
    read = [(c.candidate_id, space.read(c.trace)) for c in candidates]
    again = [(i, space.replay(p)) for i, p in read if p is not None]
    return {
        "sketches": len(space.sketches),
        "most_choices": space.choices,
        "programs": len(some),
        "rejected": sum(s is None for s in schedules),
        "as_picked": sum(
            b is not None and b.keys() == p.keys() for b, p in zip(back, some, strict=True)
        ),
        "candidates": len(candidates),
        "read": len(again),
        "same_id": sum(s is not None and program_id(s) == i for i, s in again),
        "open_s": open_s,
        "replay_ms": 1e3 * replay_s / programs,
        "breed_ms": 1e3 * max(sample_s, mutate_s, cross_s),
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its CPU seconds."""
    started = time.process_time()
    found = work()
    return found, time.process_time() - started


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--programs", type=int, default=20, help="replayed per task")
    common.run(main, parser)
