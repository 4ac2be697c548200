"""Imports every configuration that records are collected from, one after the other.

Each in a process of its own, with limits on time and memory: import, graph pipeline and splitting
into tasks; nothing is compiled or tuned. Counts the tasks that no earlier configuration has.

    .venv/bin/python benchmarks/zoo_import.py --json out.json
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import time
from typing import Any

import common

LIMIT_S = 180.0
MEMORY_GIB = 8
WANTED = 84
#: What every import needs is loaded once, before the processes fork off.
PRELOADED = [
    "torch._dynamo",
    "torch.export._trace",
    "transformers",
    "tunefleet.compiler.graph.pipeline",
    "tunefleet.compiler.toolchain.host",
    "tunefleet.compiler.frontends.relax_",
    "tunefleet.compiler.frontends.torch_graph",
    "tunefleet.stages.importing",
    "tvm.relax.frontend.torch",
]
CONTEXT = multiprocessing.get_context("forkserver")
COLUMNS = ["configuration", "import_s", "cpu_s", "peak_gb", "gflops", "tasks", "new_tasks"]


def main(options: argparse.Namespace) -> int:
    started = time.time()
    CONTEXT.set_forkserver_preload(PRELOADED)
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    task_ids: dict[str, list[str]] = {}
    configurations = chosen(options)
    print("  ".join(COLUMNS), flush=True)
    for configuration in configurations:
        if time.time() - started > 60 * options.minutes:
            break
        found = in_process(configuration, options.limit)
        if "reason" in found:
            failures.append({"configuration": configuration, **found})
            print(f"{configuration}  FAILED: {found['reason']}", flush=True)
            continue
        seen = {task for known in task_ids.values() for task in known}
        task_ids[configuration] = found.pop("task_ids")
        new = set(task_ids[configuration]) - seen
        row = {"configuration": configuration, **found, "new_tasks": len(new)}
        rows.append(row)
        print("  ".join(common._text(row[c]) for c in COLUMNS), flush=True)
    print()
    common.table(rows, COLUMNS)
    distinct = sum(row["new_tasks"] for row in rows)
    times = sorted(row["import_s"] for row in rows)
    figures = {
        "rows": rows,
        "failures": failures,
        "distinct_tasks": distinct,
        "not_reached": configurations[len(rows) + len(failures) :],
        "task_ids": task_ids,
        "median_import_s": times[len(times) // 2] if times else None,
    }
    print(f"\n{len(rows)} imported, {len(failures)} failed, {distinct} distinct tasks")
    checks = [
        common.at_least("configurations imported", len(rows), WANTED, "condition"),
        common.at_most("failures", len(failures), 0, "aim", any_size=True),
        common.at_most("longest import, s", max(times, default=0.0), options.limit, "aim"),
    ]
    return common.finish("zoo_import", started, figures, checks, options.json)


def chosen(options: argparse.Namespace) -> list[str]:
    """Of the collection or its beginning, small batches before large ones."""
    from tunefleet.zoo import CONFIGURATIONS, parse

    count = 3 if options.quick else options.first
    ordered = sorted(CONFIGURATIONS[:count], key=lambda spec: parse(spec)["batch"])
    return ordered[options.skip :]


def in_process(configuration: str, limit_s: float) -> dict[str, Any]:
    """What `imported` finds, or the reason for its failure."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_child, args=(configuration, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limit_s):
            process.kill()
            return {"reason": f"took longer than {limit_s:g} s"}
        found: dict[str, Any] = receiver.recv()
        return found
    except EOFError:
        process.join()
        return {"reason": f"ended with exit code {process.exitcode}"}
    finally:
        process.join()


def _child(configuration: str, sender: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_GIB << 30, MEMORY_GIB << 30))
    try:
        sender.send(imported(configuration))
    except Exception as exc:
        sender.send({"reason": f"{type(exc).__name__}: {str(exc)[:160]}"})


def imported(configuration: str) -> dict[str, Any]:
    """Seconds of the import (wall, CPU; packages loaded before), peak memory, FLOPs and tasks."""
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.stages.importing import import_network

    target = native_target(1)
    started, cpu_before = time.perf_counter(), time.process_time()
    tasks = import_network(configuration, target).tasks
    return {
        "import_s": time.perf_counter() - started,
        "cpu_s": time.process_time() - cpu_before,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "gflops": sum(t.total_flops for t in tasks) / 1e9,
        "tasks": len(tasks),
        "task_ids": [t.task.task_id for t in tasks],
    }


if __name__ == "__main__":
    options = common.parser(__doc__ or "")
    options.add_argument("--first", type=int, help="only so many of the collection")
    options.add_argument("--skip", type=int, default=0, help="so many that are known already")
    options.add_argument("--minutes", type=float, default=math.inf, help="start no more after")
    options.add_argument("--limit", type=float, default=LIMIT_S, help="seconds per configuration")
    common.run(main, options)
