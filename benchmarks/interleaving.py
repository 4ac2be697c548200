"""Four real jobs under each policy, host and device on cores of their own; and what the scheduler
itself costs.

The searches start from nothing, with the same budgets, in a store and on workers of their own; the
policies take turns. Wall time is that of the searches together; utilisation is the share of it in
which a stage ran on the resource. After each of `sequential` (every network tuned as if alone) and
`predictive`, the networks are built and their latencies compared in one session.

    .venv/bin/python benchmarks/interleaving.py --json out.json
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

NETWORKS = ("zoo:squeezenet", "zoo:mobilenet_v2", "zoo:resnet18", "zoo:bert_tiny")
POLICIES = ("sequential", "synchronous", "interleaved", "predictive")
#: Whose modules are compared: networks tuned as if alone, and tuned beside each other.
COMPARED = ("sequential", "predictive")


class Bench:
    """Networks imported once; every run has a fleet of its own."""

    def __init__(self, networks: list[str], host: int, device: int) -> None:
        from tunefleet.compiler.host import machine_layout, native_target
        from tunefleet.core.settings import TuneSettings
        from tunefleet.fleet.network_work import import_network

        self.target = native_target(1)
        self.layout = machine_layout(1, (host,), (device,)).layout
        self.settings = TuneSettings(transfer=False)
        self.networks = {name: import_network(name, self.target) for name in networks}

    def fleet(self, home: str) -> Any:
        from tunefleet.fleet.local import LocalFleet

        fleet = LocalFleet(self.target, self.settings, self.layout, Path(home))
        fleet.machine.host.call(abs, 1)  # the workers' start is not the policy's
        fleet.machine.lead.call(abs, 1)
        fleet.machine.device.call(abs, 1)
        return fleet

    def open_job(self, fleet: Any, name: str, trials: int, seed: int) -> Any:
        from dataclasses import replace

        from tunefleet.compiler.host import device_identity
        from tunefleet.compiler.toolchain import toolchain_identity
        from tunefleet.core.budget import Budget
        from tunefleet.core.job import JobSpec

        imported, _, tasks = self.networks[name]
        settings = replace(self.settings, search=replace(self.settings.search, seed=seed))
        spec = JobSpec(imported.info, self.target, device_identity(), toolchain_identity(),
                       Budget(trials=trials), settings)  # fmt: skip
        job = fleet.store.open_job(spec, job_id=f"{name}-{seed}", now=time.time())
        fleet.store.put_tasks(job.job_id, tasks)
        return job

    def under(
        self, policy: str, names: list[str], trials: int, seed: int, modules: Path | None
    ) -> dict[str, Any]:
        """All networks at once under a policy; their modules are kept in `modules`."""
        with tempfile.TemporaryDirectory() as home:
            fleet = self.fleet(home)
            jobs = [self.open_job(fleet, name, trials, seed) for name in names]
            started = time.perf_counter()
            shell = fleet.shell(policy)
            for job in jobs:
                shell.submit(fleet.search(job, lambda event: None))
            shell.run()
            wall_s = time.perf_counter() - started
            found = {"policy": policy, "seed": seed, "wall_s": wall_s, **busy(fleet, jobs, wall_s)}
            if modules is not None:
                for name, job in zip(names, jobs, strict=True):
                    self.build(fleet, name, job, modules)
            fleet.close()
        return found

    def build(self, fleet: Any, name: str, job: Any, modules: Path) -> None:
        from tunefleet.fleet.finalists import Finalists
        from tunefleet.fleet.network_work import compile_to

        finalists = Finalists(fleet.store, fleet.machine, job, lambda event: None)
        finalists.build()
        finalists.crown()
        crowned = fleet.store.winners(job.job_id)
        traces = {t: w.candidate.trace for t, (w, _) in crowned.items() if w is not None}
        path = modules / f"{name.replace(':', '-')}.so"
        compile_to(path, self.networks[name][1], self.target, traces)

    def latencies(self, name: str, directories: list[Path], rounds: int) -> list[list[float]]:
        """Seconds of a network's modules, measured in turn on the device."""
        from tunefleet.fleet import work

        imported = self.networks[name][0]
        paths = [str(d / f"{name.replace(':', '-')}.so") for d in directories]
        with tempfile.TemporaryDirectory() as home:
            fleet = self.fleet(home)
            found: list[list[float]] = fleet.machine.device.call(
                work.time_networks, paths, list(imported.example_inputs), rounds, 0.25
            )
            fleet.close()
        return found

    def without_scheduler(self, name: str, trials: int, seed: int) -> tuple[float, float]:
        """(wall seconds, seconds outside of stages) of one job in a plain loop."""
        from tunefleet.core.stage import STAGE_ORDER, StageKey
        from tunefleet.fleet.stages import Lane, StageRunner

        with tempfile.TemporaryDirectory() as home:
            fleet = self.fleet(home)
            job = self.open_job(fleet, name, trials, seed)
            runner = StageRunner(fleet.store, fleet.machine)
            started = time.perf_counter()
            live = fleet.search(job, lambda event: None)
            plan, stages_s = live.plan, 0.0
            while not plan.ended(time.monotonic()):
                task_id = plan.next_lane(time.monotonic())
                if task_id is None:
                    break
                iteration = plan.lanes()[task_id]
                for kind in STAGE_ORDER:
                    key = StageKey(job.job_id, task_id, iteration, kind)
                    lane = Lane(job, live.tasks[task_id])
                    run = runner.run(lane, key, plan.batch(task_id))
                    fleet.store.commit(run)
                    stages_s += run.seconds
                    if not plan.absorb(key, run.result, run.seconds):
                        break
                plan.closed(task_id)
            wall_s = time.perf_counter() - started
            fleet.close()
        return wall_s, wall_s - stages_s


def busy(fleet: Any, jobs: list[Any], wall_s: float) -> dict[str, float]:
    """Share of the wall time in which a stage ran, by resource; trials; seconds of stages."""
    runs = [run for job in jobs for run in fleet.store.stages(job.job_id)]
    seconds = {r: sum(run.seconds for run in runs if run.resource_id == r)
               for r in ("host", "device")}  # fmt: skip
    trials = sum(len(fleet.store.trials(job.job_id)) for job in jobs)
    return {
        "host": seconds["host"] / wall_s,
        "device": seconds["device"] / wall_s,
        "stages_s": sum(seconds.values()),
        "stages": len(runs),
        "trials": trials,
    }


def overhead(bench: Bench, name: str, trials: int, pairs: int) -> list[dict[str, Any]]:
    """A job under the scheduler, one stage at a time as without it, beside the plain loop."""
    rows = []
    for pair in range(pairs):
        sides: dict[str, tuple[float, float]] = {}
        for side in ("with", "without") if pair % 2 else ("without", "with"):
            if side == "without":
                sides[side] = bench.without_scheduler(name, trials, pair)
            else:
                found = bench.under("sequential", [name], trials, pair, None)
                sides[side] = found["wall_s"], found["wall_s"] - found["stages_s"]
        rows.append({
            "with_s": sides["with"][0], "without_s": sides["without"][0],
            "ratio": sides["with"][0] / sides["without"][0],
            "between_with": sides["with"][1] / sides["with"][0],
            "between_without": sides["without"][1] / sides["without"][0],
        })  # fmt: skip
        common.table(rows[-1:], list(rows[-1]))
        sys.stdout.flush()
    return rows


def main(options: argparse.Namespace) -> int:
    from tunefleet.core.statistics import interval, median

    started = time.time()
    networks = list(NETWORKS[:2] if options.quick else NETWORKS)
    trials, repeats, pairs = (20, 1, 1) if options.quick else (
        options.trials, options.repeats, options.pairs)  # fmt: skip
    bench = Bench(networks, options.host_core, options.device_core)
    runs: list[dict[str, Any]] = []
    latency: list[dict[str, Any]] = []
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as kept:
            turn = repeat % len(POLICIES)
            for policy in POLICIES[turn:] + POLICIES[:turn]:
                modules = Path(kept) / policy
                modules.mkdir()
                keep = modules if policy in COMPARED else None
                runs.append(bench.under(policy, networks, trials, repeat, keep))
                common.table(runs[-1:], list(runs[-1]))
                sys.stdout.flush()
            for name in networks:
                sides = [Path(kept) / policy for policy in COMPARED]
                alone, beside = bench.latencies(name, sides, 15)
                ratio = interval([b / a for a, b in zip(alone, beside, strict=True)])
                latency.append({
                    "network": name, "seed": repeat, "alone_ms": median(alone) * 1e3,
                    "beside_ms": median(beside) * 1e3, "ratio": ratio.median,
                    "low": ratio.low, "high": ratio.high,
                })  # fmt: skip
    rows = []
    for policy in POLICIES:
        of = [r for r in runs if r["policy"] == policy]
        base = [r for r in runs if r["policy"] == "sequential"]
        walls = [r["wall_s"] for r in of]
        rows.append({
            "policy": policy, "wall_s": median(walls), "from": min(walls), "to": max(walls),
            "of_sequential": median([a["wall_s"] / b["wall_s"]
                                     for a, b in zip(of, base, strict=True)]),
            "host": median([r["host"] for r in of]), "device": median([r["device"] for r in of]),
            "trials": median([r["trials"] for r in of]),
        })  # fmt: skip
    print()
    common.table(rows, list(rows[0]))
    print("\nlatency of the networks tuned beside each other, over tuned as if alone:")
    common.table(latency, list(latency[0]))
    print("\none job with the scheduler and without it:")
    costs = overhead(bench, networks[0], trials, pairs)
    by_name = {row["policy"]: row for row in rows}
    checks = [
        common.at_most("wall, interleaved / sequential",
                       by_name["interleaved"]["of_sequential"], 1.0, "condition"),
        common.at_most("wall, predictive / interleaved",
                       by_name["predictive"]["wall_s"] / by_name["interleaved"]["wall_s"],
                       1.02, "condition"),
        common.at_most("one job, with / without the scheduler",
                       median([row["ratio"] for row in costs]), 1.02, "condition"),
        common.at_most("latency beside / alone, median of the networks",
                       median([row["ratio"] for row in latency]), 1.02, "condition"),
    ]  # fmt: skip
    figures = {"rows": rows, "runs": runs, "latency": latency, "overhead": costs, "trials": trials}
    return common.finish("interleaving", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Four real jobs under each policy.")
    made.add_argument("--trials", type=int, default=96, help="of each network")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--pairs", type=int, default=5, help="for the scheduler's own cost")
    made.add_argument("--host-core", type=int, default=0)
    made.add_argument("--device-core", type=int, default=1)
    common.run(main, made)
