"""Programs as arrays of decisions: how fast, and whether they are the ones MetaSchedule makes.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/decisions.py --json out.json

For every task of the networks: are candidates of MetaSchedule's random search programs of the
space and made again as they were, how many random programs does TVM reject, and CPU time of it all.
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
    "candidates", "read", "same", "open_s", "write_ms", "replay_ms", "breed_ms",
]  # fmt: skip


def main(options: argparse.Namespace) -> int:
    started = time.time()
    rows = [_network(n, options.programs) for n in NETWORKS[: 1 if options.quick else None]]
    common.table(rows, COLUMNS)
    read = sum(r["read"] for r in rows) / sum(r["candidates"] for r in rows)
    same = sum(r["same"] for r in rows) / sum(r["read"] for r in rows)
    checks = [
        common.at_least("share of MetaSchedule's candidates read", read, 0.99, "condition"),
        common.at_least("of these, share that is the same program", same, 1.0, "condition",
                        any_size=True),
        common.at_most(
            f"slowest of sample, mutate, cross of {POPULATION}, ms",
            max(r["breed_ms"] for r in rows), 50.0, "condition",
        ),
    ]  # fmt: skip
    return common.finish("decisions", started, {"rows": rows}, checks, options.json)


def _network(network: str, programs: int) -> dict[str, Any]:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.stages.importing import import_network

    target = native_target(1)
    tasks = import_network(network, target).tasks
    found = [_task(weighted.task.program, target, programs) for weighted in tasks]
    totals = {key: sum(row[key] for row in found) for key in found[0]}
    return {
        "network": network,
        "tasks": len(tasks),
        **totals,
        "most_choices": max(row["most_choices"] for row in found),
        "open_s": max(row["open_s"] for row in found),
        "write_ms": totals["write_ms"] / len(found),
        "replay_ms": totals["replay_ms"] / len(found),
        "breed_ms": max(row["breed_ms"] for row in found),
    }


def _task(program: str, target: Any, programs: int) -> dict[str, Any]:
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.search.decisions import DecisionSpace

    rng = np.random.default_rng(0)
    space, open_s = _timed(lambda: DecisionSpace.of(sketches_of(program, target)))
    population, sample_s = _timed(lambda: space.sample(POPULATION, rng))
    mutated, mutate_s = _timed(lambda: space.mutate(population, rng))
    crossed, cross_s = _timed(lambda: space.cross(mutated, population, rng))
    some = crossed.take(np.arange(programs))
    traces, write_s = _timed(lambda: space.traces(some))
    wholes, replay_s = _timed(lambda: [_whole(program, target, trace) for trace in traces])
    back = [space.read(whole) if whole is not None else None for whole in wholes]
    candidates = _of_metaschedule(program, target, programs)
    read = [(module, space.read(trace)) for module, trace in candidates]
    again = [(m, space.traces(p)[0]) for m, p in read if p is not None]
    return {
        "sketches": len(space.sketches),
        "most_choices": space.choices,
        "programs": len(some),
        "rejected": sum(whole is None for whole in wholes),
        "as_picked": sum(
            b is not None and b.keys() == p.keys() for b, p in zip(back, some, strict=True)
        ),
        "candidates": len(candidates),
        "read": len(again),
        "same": sum(_makes(program, target, trace, module) for module, trace in again),
        "open_s": open_s,
        "write_ms": 1e3 * write_s / programs,
        "replay_ms": 1e3 * replay_s / programs,
        "breed_ms": 1e3 * max(sample_s, mutate_s, cross_s),
    }


def _of_metaschedule(program: str, target: Any, count: int) -> list[tuple[Any, str]]:
    """Modules and traces of MetaSchedule's own random search."""
    from tunefleet.compiler.space.spaces import tune_contexts
    from tunefleet.compiler.toolchain.programs import load_program, trace_text

    *_, context = tune_contexts(load_program(program), target, "replay-trace", seed=3)
    strategy = context.search_strategy
    strategy.pre_tuning(count, count, context.generate_design_space(), None, None)
    found = strategy.generate_measure_candidates()
    return [(c.sch.mod, trace_text(c.sch.trace)) for c in found or ()]


def _whole(program: str, target: Any, trace: str) -> str | None:
    """The trace with its postprocessing; None when TVM rejects it."""
    from tunefleet.compiler.code.replay import completed

    try:
        return completed(program, target, trace)
    except Exception:
        return None


def _makes(program: str, target: Any, trace: str, module: Any) -> bool:
    """Whether the trace makes this very program."""
    import tvm_ffi

    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.toolchain.programs import load_program

    made = replay(load_program(program), target, trace).mod
    return bool(tvm_ffi.structural_equal(made, module, map_free_vars=True))


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its CPU seconds."""
    started = time.process_time()
    found = work()
    return found, time.process_time() - started


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--programs", type=int, default=20, help="replayed per task")
    common.run(main, parser)
