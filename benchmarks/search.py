"""What a pretrained cost model and schedule transfer save, beside stock MetaSchedule.

Latency over trials and over wall time of four searches of the same tasks, from nothing each:

    stock        meta_schedule.tune_tasks with its own settings, 64 trials per task, its import of
                 tensor intrinsics stubbed (as shipped it takes longer still)
    cold         tunefleet without a pretrained model and without transfer between tasks
    pretrained   the shipped cost model steers from the first trial
    transfer     and programs of tuned tasks are adapted to similar ones before any search

The networks are not in the training data of the shipped model. The latency of a network is the sum
of its tasks' best ones by their occurrences. What is compared at the end are the winners of all
sides, built and measured by one worker in turn. Runs are kept in `--json OUT` as they end, and the
same command goes on where it stopped.

    .venv/bin/python benchmarks/search.py --json search.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
from trial_throughput import STUB

NETWORKS = ("zoo:squeezenet", "zoo:shufflenet_v2", "zoo:vit_tiny")
SIDES = ("stock", "cold", "pretrained", "transfer")
PER_TASK = 64
#: Latencies are compared after these shares of stock's trials, besides at the end.
_SHARES = (0.05, 0.1, 0.2, 0.5)


def _tasks(network: str) -> list[Any]:
    from tunefleet.compiler.host import native_target
    from tunefleet.compiler.toolchain import load_tvm

    load_tvm()
    from tunefleet.fleet.network_work import import_network

    return import_network(network, native_target())[2]


def stock(network: str, seed: int, trials: int) -> dict[str, Any]:
    import importlib

    from tvm.s_tir import meta_schedule as ms

    from tunefleet.compiler.host import native_target, to_tvm
    from tunefleet.compiler.programs import load_program, trace_text

    # The schedule rules of processors with VNNI ask for these by name.
    importlib.import_module("tvm.s_tir.tensor_intrin.x86")

    tasks, target = _tasks(network), to_tvm(native_target())
    contexts = [
        ms.TuneContext(
            load_program(w.task.program), target=target, space_generator="post-order-apply",
            search_strategy="evolutionary", task_name=w.task.task_id, rand_state=seed * 1000 + i,
            num_threads=os.cpu_count(),
        )
        for i, w in enumerate(tasks)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as work_dir:
        watch = _Watch(ms)
        started = time.perf_counter()
        database = ms.tune_tasks(
            tasks=contexts, task_weights=[float(w.weight) for w in tasks], work_dir=work_dir,
            max_trials_global=trials, max_trials_per_task=trials, num_trials_per_iter=PER_TASK,
            measure_callbacks=[*ms.measure_callback.MeasureCallback.create("default"),
                               watch.callback(started)],
        )  # fmt: skip
        wall_s = time.perf_counter() - started
        del database
    best: dict[str, tuple[float, str]] = {}
    for _, task_id, latency_s, trace in watch.seen:
        if latency_s < best.get(task_id, (float("inf"), ""))[0]:
            best[task_id] = (latency_s, trace_text(trace))
    return {
        "wall_s": wall_s,
        "trials": watch.count,
        "points": [[s, task_id, latency_s] for s, task_id, latency_s, _ in watch.seen],
        "best": {task_id: trace for task_id, (_, trace) in best.items()},
    }


class _Watch:
    """When stock measured what: MetaSchedule itself keeps no times."""

    def __init__(self, ms: Any) -> None:
        self._ms = ms
        self.seen: list[tuple[float, str, float, Any]] = []
        self.count = 0

    def callback(self, started: float) -> Any:
        import tvm

        watch = self

        @tvm.ir.utils.derived_object
        class Callback(self._ms.measure_callback.PyMeasureCallback):  # type: ignore[name-defined]
            def apply(self, scheduler: Any, index: int, candidates: Any, builds: Any,
                      results: Any) -> None:  # fmt: skip
                now = time.perf_counter() - started
                name = str(scheduler.tasks_[index].ctx.task_name)
                for candidate, result in zip(candidates, results, strict=True):
                    watch.count += 1
                    if result.run_secs:
                        seconds = [float(s) for s in result.run_secs]
                        mean = sum(seconds) / len(seconds)
                        watch.seen.append((now, name, mean, candidate.sch.trace))

        return Callback()


def ours(network: str, seed: int, side: str, trials: int, **changes: Any) -> dict[str, Any]:
    from tunefleet.compiler.host import device_identity, machine_layout, native_target
    from tunefleet.compiler.toolchain import toolchain_identity
    from tunefleet.core.budget import Budget
    from tunefleet.core.job import JobSpec
    from tunefleet.core.network import NetworkInfo
    from tunefleet.core.settings import SHIPPED_MODEL, SearchSettings, TuneSettings
    from tunefleet.core.stage import StageKind
    from tunefleet.costmodel.registry import registry_of
    from tunefleet.fleet.local import LocalFleet

    tasks, target = _tasks(network), native_target()
    model = "" if side == "cold" else registry_of(None).get(SHIPPED_MODEL).card.id
    search = replace(SearchSettings(), seed=seed, pretrained=model, **changes)
    settings = TuneSettings(search=search, transfer=side == "transfer")
    spec = JobSpec(
        NetworkInfo(network, network, network, (), ()), target, device_identity(),
        toolchain_identity(), Budget(trials=trials), settings,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as home:
        fleet = LocalFleet(target, settings, machine_layout().layout, Path(home))
        store = fleet.store
        job = store.open_job(spec, job_id="0" * 32, now=time.time())
        store.put_tasks(job.job_id, tasks)
        started, began = time.perf_counter(), time.time()
        shell = fleet.shell()
        shell.submit(fleet.search(job, lambda event: None))
        shell.run()
        wall_s = time.perf_counter() - started
        runs = store.stages(job.job_id)
        ended = {
            (r.key.task_id, r.key.iteration): r.started_at + r.seconds - began
            for r in runs if r.key.kind is StageKind.PROFILE
        }  # fmt: skip
        seconds = {str(k): sum(r.seconds for r in runs if r.key.kind is k) for k in StageKind}
        points, best = [], {}
        for w in tasks:
            for trial in store.trials(job.job_id, w.task.task_id):
                if trial.latency_s is None:
                    continue
                key = (w.task.task_id, trial.iteration)
                points.append([ended[key], w.task.task_id, trial.latency_s])
                if trial.latency_s < best.get(w.task.task_id, (float("inf"), ""))[0]:
                    best[w.task.task_id] = (trial.latency_s, trial.candidate.trace)
        count = len(store.trials(job.job_id))
        fleet.close()
    return {
        "wall_s": wall_s, "trials": count, "points": sorted(points), "stages_s": seconds,
        "best": {task_id: trace for task_id, (_, trace) in best.items()},
    }  # fmt: skip


def remeasured(network: str, winners: dict[str, dict[str, str]]) -> dict[str, dict[str, float]]:
    """Seconds of every side's winner of every task, measured in turn by one worker."""
    from tunefleet.compiler.host import machine_layout, native_target
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.trial import Built, Measurement
    from tunefleet.fleet import work
    from tunefleet.fleet.machine import Machine

    target, settings = native_target(), TuneSettings()
    found: dict[str, dict[str, float]] = {side: {} for side in winners}
    with Machine(target, settings, machine_layout().layout) as machine:
        for w in _tasks(network):
            built = []
            for side, traces in winners.items():
                if w.task.task_id in traces:
                    made = machine.host.call(
                        work.build_candidate, w.task.program, target, f"w-{side}",
                        traces[w.task.task_id], str(machine.scratch), timeout_s=60,
                    )  # fmt: skip
                    if isinstance(made, Built):
                        built.append((side, made))
            results = machine.device.call(
                work.profile_interleaved, [b for _, b in built], settings.measure, timeout_s=300
            )
            for (side, _), result in zip(built, results, strict=True):
                if isinstance(result, Measurement):
                    found[side][w.task.task_id] = result.latency_s
    return found


def _in_process(what: str, *words: str) -> Any:
    """In a fresh process, stock with TVM's slow import stubbed."""
    with tempfile.TemporaryDirectory() as folder:
        environment, out = dict(os.environ), Path(folder, "out.json")
        if words[2:] and words[2] == "stock":
            from tunefleet.compiler.host import native_target

            Path(folder, "sitecustomize.py").write_text(STUB)
            environment["PYTHONPATH"] = folder + os.pathsep + environment.get("PYTHONPATH", "")
            environment["TVM_NUM_THREADS"] = str(native_target().threads)
        log = Path(folder, "log")
        with log.open("w") as stream:
            process = subprocess.run(
                [sys.executable, __file__, "--worker", what, *words, str(out)],
                env=environment, stdout=stream, stderr=stream, check=False,
            )  # fmt: skip
        if process.returncode != 0:
            raise RuntimeError(f"{what} {words}: {log.read_text()[-2000:]}")
        return json.loads(out.read_text())


def worker(what: str, *words: str) -> None:
    out = Path(words[-1])
    if what == "search":
        network, seed, side, trials = words[:4]
        run = stock(network, int(seed), int(trials)) if side == "stock" else ours(
            network, int(seed), side, int(trials))  # fmt: skip
        out.write_text(json.dumps(run))
    else:
        network, path = words[:2]
        out.write_text(json.dumps(remeasured(network, json.loads(Path(path).read_text()))))


def curve(points: list[Any], weights: dict[str, int]) -> list[tuple[float, int, float]]:
    """(wall seconds, trials so far, latency of the network) from where every task has one."""
    best: dict[str, float] = {}
    found = []
    for number, (seconds, task_id, latency_s) in enumerate(points, 1):
        best[task_id] = min(latency_s, best.get(task_id, latency_s))
        if len(best) == len(weights):
            found.append((seconds, number, sum(weights[t] * s for t, s in best.items())))
    return found


def reached(points: list[tuple[float, int, float]], latency_s: float) -> tuple[float, int] | None:
    """(wall seconds, trials) at which a latency was reached."""
    return next(((s, n) for s, n, latency in points if latency <= latency_s), None)


def main(options: argparse.Namespace) -> int:
    if options.worker:
        worker(*options.worker)
        return 0
    started = time.time()
    kept: dict[str, Any] = {}
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text())["figures"]["runs"]
    rows: list[dict[str, Any]] = []
    for network in options.networks:
        tasks = _tasks(network)
        weights = {w.task.task_id: w.weight for w in tasks}
        trials = (4 if options.quick else options.per_task) * len(tasks)
        for seed in range(options.seeds):
            own = kept.setdefault(f"{network} {seed} {trials}", {})
            for side in options.sides:
                if side not in own:
                    count = trials if side == "stock" else int(options.share * trials)
                    own[side] = _in_process("search", network, str(seed), side, str(count))
                    print(f"{network} seed {seed} {side}: {own[side]['wall_s']:.0f} s", flush=True)
                    _keep(options.json, started, kept)
            if set(own.get("final", {})) != set(options.sides):
                winners = {side: own[side]["best"] for side in options.sides}
                with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                    json.dump(winners, file)
                    file.flush()
                    own["final"] = _in_process("measure", network, file.name)
                _keep(options.json, started, kept)
            rows += compared(network, seed, own, weights, options.sides)
            common.table(rows[-len(options.sides) :], list(rows[-1]))
    figures = {"runs": kept, "rows": rows}
    return common.finish("search", started, figures, checks(rows), options.json)


def _keep(path: Path | None, started: float, kept: dict[str, Any]) -> None:
    if path is not None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"figures": {"runs": kept}, "started": started}))
        draft.replace(path)


def compared(
    network: str, seed: int, own: dict[str, Any], weights: dict[str, int], sides: list[str]
) -> list[dict[str, Any]]:
    """A row of each side; times and trials are those to stock's final latency."""
    final = {
        side: sum(weights[t] * own["final"][side][t] for t in own["final"][side]) for side in sides
    }
    rows = []
    for side in sides:
        points = curve(own[side]["points"], weights)
        row: dict[str, Any] = {
            "network": network, "seed": seed, "side": side, "trials": own[side]["trials"],
            "wall_s": own[side]["wall_s"], "final_ms": 1e3 * final[side],
        }  # fmt: skip
        for share in _SHARES:
            at = int(share * own[side]["trials"])
            known = [latency for _, number, latency in points if number <= at]
            row[f"ms at {share:.0%}"] = 1e3 * known[-1] if known else None
        if "stock" in sides and side != "stock":
            hit = reached(points, final["stock"])
            row["final / stock"] = final[side] / final["stock"]
            row["fewer trials"] = own["stock"]["trials"] / hit[1] if hit else None
            row["less wall"] = own["stock"]["wall_s"] / hit[0] if hit else None
        if "stages_s" in own[side]:
            stages = own[side]["stages_s"]
            row["select+update"] = (stages["select"] + stages["update"]) / own[side]["wall_s"]
        rows.append(row)
    return [{name: row.get(name) for name in dict.fromkeys(n for r in rows for n in r)}
            for row in rows]  # fmt: skip


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    found = []
    for side, name, bound in (
        ("transfer", "fewer trials", 9.3), ("transfer", "less wall", 30.0),
    ):  # fmt: skip
        values = sorted(r.get(name) or 0.0 for r in rows if r["side"] == side)
        if values:
            middle = values[len(values) // 2]
            found.append(common.at_least(f"{side}: {name}, median", middle, bound, "aim"))
    finals = sorted(r["final / stock"] for r in rows
                    if r["side"] == "transfer" and r.get("final / stock"))  # fmt: skip
    if finals:
        middle = finals[len(finals) // 2]
        found.append(common.at_most("transfer: final latency / stock", middle, 1 / 1.1, "aim"))
    shares = [r["select+update"] for r in rows if r.get("select+update")]
    if shares:
        found.append(common.at_most("select + update, worst", max(shares), 0.15, "aim"))
    return found


if __name__ == "__main__":
    made = common.parser("Whole networks, from nothing: stock MetaSchedule and tunefleet.")
    made.add_argument("--networks", nargs="+", default=list(NETWORKS))
    made.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--per-task", type=int, default=PER_TASK, help="trials of each task")
    made.add_argument("--share", type=float, default=1.0, help="of stock's trials for ours")
    made.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    common.run(main, made)
