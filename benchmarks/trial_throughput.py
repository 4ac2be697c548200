"""Trials per minute: tunefleet against stock MetaSchedule, same tasks, batch size and threads.

Three sides in one run, taking turns task by task: `stock` is `meta_schedule.tune_tir` as shipped;
`cured` is the same with TVM's slow import of tensor intrinsics stubbed out in every process;
`tunefleet` is the stage loop under the simplest driver. Wall time counts from the call to the last
trial, process start-up of each side's workers included, importing TVM in the main process not.

    .venv/bin/python benchmarks/trial_throughput.py --json out.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
from searching import STUB, searched


def tasks() -> dict[str, Any]:
    """A matmul, a 3x3 convolution and a depthwise convolution, each with bias and relu."""
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    te, topi = tvm.te, tvm.topi

    def module(inputs: list[Any], output: Any) -> Any:
        function = te.create_prim_func([*inputs, output]).with_attr("layout_free_buffers", [1])
        named = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
        return tvm.IRModule({"main": named})

    def matmul() -> Any:
        a = te.placeholder((128, 768), name="a")
        w = te.placeholder((768, 768), name="w")
        b = te.placeholder((768,), name="b")
        k = te.reduce_axis((0, 768), name="k")
        c = te.compute((128, 768), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="matmul")
        return module([a, w, b], topi.nn.relu(topi.add(c, b)))

    def conv(groups: int) -> Any:
        channels = 64 if groups == 1 else groups
        a = te.placeholder((1, 56, 56, channels), name="a")
        w = te.placeholder((3, 3, channels // groups, channels), name="w")
        b = te.placeholder((1, 1, 1, channels), name="b")
        if groups == 1:
            c = topi.nn.conv2d(a, w, 1, 1, 1, "NHWC", "HWIO", "float32")
        else:
            c = topi.nn.group_conv2d_nhwc(a, w, 1, 1, 1, groups, "float32")
        return module([a, w, b], topi.nn.relu(topi.add(c, b)))

    return {"matmul": matmul(), "conv3x3": conv(1), "depthwise": conv(144)}


def stock(name: str, trials: int, batch: int) -> dict[str, Any]:
    """MetaSchedule as it is, or cured when this process was started so."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    if not hasattr(sys.modules.get("tvm.s_tir.tensor_intrin"), "__file__"):
        # Cured: the schedule rules of processors with VNNI ask for these by name.
        import tvm.s_tir.tensor_intrin.x86

    module, target = tasks()[name], to_tvm(native_target())
    with tempfile.TemporaryDirectory() as work_dir:
        started = time.perf_counter()
        database = ms.tune_tir(
            mod=module, target=target, work_dir=work_dir, max_trials_global=trials,
            num_trials_per_iter=batch, seed=1,
        )  # fmt: skip
        wall_s = time.perf_counter() - started
        records = database.get_all_tuning_records()
        best = min((float(min(r.run_secs)) for r in records if r.run_secs), default=None)
    del tvm
    done = [r for r in records if r.run_secs and float(min(r.run_secs)) < 1e9]
    return {
        "trials": len(records),
        "ok": len(done),
        "wall_s": wall_s,
        "best_us": best and best * 1e6,
    }


def _in_process(side: str, name: str, trials: int, batch: int, threads: int) -> dict[str, Any]:
    """One side on one task in a fresh process, so that each starts its own workers."""
    with tempfile.TemporaryDirectory() as site:
        environment = dict(os.environ)
        if side != "tunefleet":
            environment["TVM_NUM_THREADS"] = str(threads)
        if side == "cured":
            Path(site, "sitecustomize.py").write_text(STUB, encoding="utf-8")
            environment["PYTHONPATH"] = site + os.pathsep + environment.get("PYTHONPATH", "")
        command = [sys.executable, __file__, "--side", side, name, str(trials), str(batch)]
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=3600
        )
    if process.returncode != 0:
        raise RuntimeError(f"{side} {name}: {process.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return told


def ours(name: str, trials: int, batch: int) -> dict[str, Any]:
    """tunefleet's loop with its default search, transfer switched off."""
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SearchSettings

    return drive(name, Budget(trials=trials), SearchSettings(batch=batch, first_batch=batch))


def drive(name: str, budget: Any, search: Any) -> dict[str, Any]:
    """One task, from nothing, until the budget ends."""
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.stage import StageKind
    from tunefleet.core.task import Task, WeightedTask
    from tunefleet.core.trial import Measurement

    tvm = load_tvm()
    module = tasks()[name]
    flops = float(tvm.s_tir.analysis.estimate_tir_flops(module))
    task = Task(f"bench-{name}", name, name, "", flops, str(tvm.ir.save_json(module)))
    settings = TuneSettings(transfer=False, search=search)
    with searched(name, [WeightedTask(task, 1)], budget, settings) as done:
        seconds = {str(kind): 0.0 for kind in StageKind}
        for run in done.store.work.stages(done.job.job_id):
            seconds[str(run.key.kind)] += run.seconds
        found = done.store.records.trials(done.job.job_id)
    builds = sorted(t.build_s for t in found if t.build_s)
    measured = [t.outcome.latency_s for t in found if isinstance(t.outcome, Measurement)]
    return {
        "trials": len(found),
        "ok": len(measured),
        "wall_s": done.wall_s,
        "best_us": min(measured) * 1e6,
        "build_s": builds[len(builds) // 2],
        "search_share": (seconds["select"] + seconds["update"]) / done.wall_s,
        "stages_s": seconds,
    }


def main(options: argparse.Namespace) -> int:
    if options.side:
        side, name, trials, batch = options.side
        run = ours if side == "tunefleet" else stock
        print(json.dumps(run(name, int(trials), int(batch))))
        return 0
    started = time.time()
    from tunefleet.compiler.toolchain.host import native_target

    trials, batch = (24, 12) if options.quick else (options.trials, options.batch)
    threads = native_target().threads
    rows: list[dict[str, Any]] = []
    checks: list[common.Check] = []
    for name in options.task or list(tasks())[: 1 if options.quick else None]:
        sides: dict[str, dict[str, Any]] = {}
        for side in ("tunefleet", "cured", "stock"):
            sides[side] = _in_process(side, name, trials, batch, threads)
            sides[side]["per_minute"] = 60 * sides[side]["trials"] / sides[side]["wall_s"]
            rows.append({"task": name, "side": side, **sides[side]})
            common.table(rows[-1:], ["task", "side", "trials", "ok", "wall_s", "per_minute",
                                     "best_us", "build_s", "search_share"])  # fmt: skip
        mine = sides["tunefleet"]
        for side, bound in (("stock", 8.0), ("cured", 3.0)):
            ratio = mine["per_minute"] / sides[side]["per_minute"]
            checks.append(common.at_least(f"{name}: times {side}", ratio, bound, "condition"))
        checks.append(
            common.at_most(
                f"{name}: median build, core-seconds", mine["build_s"], 0.25, "condition"
            )
        )
        checks.append(
            common.at_most(
                f"{name}: select + update share", mine["search_share"], 0.25, "condition"
            )
        )
    print()
    common.table(rows, ["task", "side", "trials", "ok", "wall_s", "per_minute", "best_us",
                        "build_s", "search_share"])  # fmt: skip
    figures = {"rows": rows, "trials": trials, "batch": batch, "threads": threads}
    return common.finish("trial_throughput", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Trials per minute against stock MetaSchedule.")
    made.add_argument("--trials", type=int, default=64)
    made.add_argument("--task", action="append", help="matmul, conv3x3, depthwise; default: all")
    made.add_argument("--batch", type=int, default=32)
    made.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    common.run(main, made)
