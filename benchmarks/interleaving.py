"""Four real jobs under each policy, host and device on cores of their own.

Three parts, each of which compares its sides in turn within the run (`--part` chooses):

- walls: the searches of all networks together under each policy, from nothing, with the same
  budgets; utilisation is the share of the wall time in which a stage ran on the resource.
- latency: the networks tuned beside each other under `predictive`, over tuned alone; "again" is
  tuned alone once more with another seed, which is what luck alone makes of it.
- overhead: one small job under the scheduler, one stage at a time, beside a plain loop over the
  same stages; what lies between the stages is shown as well.

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
#: Small, so that a few hundred trials say more than luck.
SMALL = (
    "zoo:tiny_cnn?size=32",
    "zoo:squeezenet?size=64",
    "zoo:resnet18?size=64",
    "zoo:bert_tiny?size=16",
)
TINY = "zoo:tiny_cnn"
POLICIES = ("sequential", "synchronous", "interleaved", "predictive")
PARTS = ("walls", "latency", "overhead")


class Bench:
    """Networks imported once; every run has a fleet of its own."""

    def __init__(self, networks: list[str], host: int, device: int) -> None:
        from tunefleet.compiler.toolchain.host import native_target
        from tunefleet.core.settings import TuneSettings
        from tunefleet.hardware.processor import machine_layout
        from tunefleet.stages.importing import import_network

        self.target = native_target(1)
        self.layout = machine_layout(1, (host,), (device,)).layout
        self.settings = TuneSettings(transfer=False)
        self.networks = {name: import_network(name, self.target) for name in networks}

    def fleet(self, home: str) -> Any:
        from tunefleet.fleet.local import LocalFleet

        fleet = LocalFleet(self.layout, Path(home))
        fleet.machine.host.call(abs, 1)  # the workers' start is not the policy's
        fleet.machine.lead.call(abs, 1)
        fleet.machine.device.call(abs, 1)
        return fleet

    def open_job(self, fleet: Any, name: str, trials: int, seed: int) -> Any:
        from dataclasses import replace

        from tunefleet.compiler.toolchain import toolchain_identity
        from tunefleet.core.budget import Budget
        from tunefleet.core.job import JobSpec
        from tunefleet.hardware.processor import device_identity

        network = self.networks[name]
        settings = replace(self.settings, search=replace(self.settings.search, seed=seed))
        spec = JobSpec(network.info, self.target, device_identity(), toolchain_identity(),
                       Budget(trials=trials), settings)  # fmt: skip
        job = fleet.store.jobs.open(spec, job_id=f"{name}-{seed}", now=time.time())
        fleet.store.work.put_tasks(job.job_id, network.tasks)
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
        from tunefleet.compiler.code.executable import compile_to
        from tunefleet.core.importing import NetworkSource
        from tunefleet.core.step import WINNERS, Preparation
        from tunefleet.stages.place import Delivery, StepRequest
        from tunefleet.stages.runner import StageRunner

        spec, runner = job.spec, StageRunner(fleet.place)
        source = NetworkSource(name, spec.network.name, "")
        preparation = Preparation(source, spec.target, spec.device, spec.toolchain)
        delivery = Delivery(job.job_id, preparation, spec.settings, job)
        for kind in WINNERS:
            fleet.store.work.commit_step(runner.run_step(StepRequest(kind, preparation, delivery)))
        decided = fleet.store.records.winners(job.job_id)
        traces = {t: w.candidate.trace for t, (w, _) in decided.items() if w is not None}
        path = modules / file_name(name)
        compile_to(path, self.networks[name].module, self.target, traces)

    def latencies(self, name: str, directories: list[Path], rounds: int) -> list[list[float]]:
        """Seconds of a network's modules, measured in turn on the device."""
        from tunefleet.core.step import Rounds
        from tunefleet.stages import work

        imported = self.networks[name].variants[0]
        paths = [str(d / file_name(name)) for d in directories]
        with tempfile.TemporaryDirectory() as home:
            fleet = self.fleet(home)
            found: list[list[float]] = fleet.machine.device.call(
                work.time_networks, paths, "main", list(imported.example_inputs),
                self.target.threads, Rounds(rounds),
            )[0]  # fmt: skip
            fleet.close()
        return found

    def without_scheduler(self, name: str, trials: int, seed: int) -> tuple[float, float]:
        """(wall seconds, seconds outside of stages) of one job in a plain loop."""
        from tunefleet.core.stage import STAGE_ORDER, StageKey
        from tunefleet.stages.place import JobTask
        from tunefleet.stages.runner import StageRunner

        with tempfile.TemporaryDirectory() as home:
            fleet = self.fleet(home)
            job = self.open_job(fleet, name, trials, seed)
            runner = StageRunner(fleet.place)
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
                    lane = JobTask(job, live.tasks[task_id])
                    run = runner.run(lane, key, plan.batch(task_id))
                    fleet.store.work.commit(run)
                    stages_s += run.seconds
                    if not plan.absorb(key, run.result, run.seconds):
                        break
                plan.closed(task_id)
            wall_s = time.perf_counter() - started
            fleet.close()
        return wall_s, wall_s - stages_s


def file_name(network: str) -> str:
    return f"{network.translate(str.maketrans(':?=', '---'))}.so"


def busy(fleet: Any, jobs: list[Any], wall_s: float) -> dict[str, float]:
    """Share of the wall time in which a stage ran, by resource; trials; seconds of stages."""
    runs = [run for job in jobs for run in fleet.store.work.stages(job.job_id)]
    seconds = {r: sum(run.seconds for run in runs if run.resource_id == r)
               for r in ("host", "device")}  # fmt: skip
    trials = sum(len(fleet.store.records.trials(job.job_id)) for job in jobs)
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


def walls(bench: Bench, networks: list[str], trials: int, repeats: int) -> list[dict[str, Any]]:
    """The searches of all networks under each policy; the policies take turns in who is first."""
    runs = []
    for repeat in range(repeats):
        turn = repeat % len(POLICIES)
        for policy in POLICIES[turn:] + POLICIES[:turn]:
            runs.append(bench.under(policy, networks, trials, repeat, None))
            common.table(runs[-1:], list(runs[-1]))
            sys.stdout.flush()
    return runs


def of_policies(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from tunefleet.core.statistics import median

    rows = []
    base = [r["wall_s"] for r in runs if r["policy"] == "sequential"]
    for policy in POLICIES:
        of = [r for r in runs if r["policy"] == policy]
        took = [r["wall_s"] for r in of]
        rows.append({
            "policy": policy, "wall_s": median(took), "from": min(took), "to": max(took),
            "of_sequential": median([a / b for a, b in zip(took, base, strict=True)]),
            "host": median([r["host"] for r in of]), "device": median([r["device"] for r in of]),
            "trials": median([r["trials"] for r in of]),
        })  # fmt: skip
    return rows


def latency(bench: Bench, networks: list[str], trials: int, repeats: int) -> list[dict[str, Any]]:
    """Modules of networks tuned alone, alone again with another seed, and beside each other."""
    from tunefleet.core.statistics import interval, median

    rows = []
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as kept:
            sides = [Path(kept) / side for side in ("alone", "again", "beside")]
            for side in sides:
                side.mkdir()
            for name in networks:
                bench.under("predictive", [name], trials, 2 * repeat, sides[0])
                bench.under("predictive", [name], trials, 2 * repeat + 1, sides[1])
            bench.under("predictive", networks, trials, 2 * repeat, sides[2])
            for name in networks:
                found = bench.latencies(name, sides, 15)
                again, beside = (
                    interval([b / a for a, b in zip(found[0], other, strict=True)])
                    for other in found[1:]
                )
                rows.append({
                    "network": name, "seed": 2 * repeat, "alone_ms": median(found[0]) * 1e3,
                    "again/alone": again.median, "beside/alone": beside.median,
                    "low": beside.low, "high": beside.high,
                })  # fmt: skip
                common.table(rows[-1:], list(rows[-1]))
                sys.stdout.flush()
    return rows


def main(options: argparse.Namespace) -> int:
    from tunefleet.core.statistics import interval, median

    started = time.time()
    quick = options.quick
    parts = options.part or list(PARTS)
    figures: dict[str, Any] = {}
    checks: list[common.Check] = []
    if "walls" in parts:
        networks = list(SMALL[:2] if quick else NETWORKS)
        bench = Bench(networks, options.host_core, options.device_core)
        trials, repeats = (20, 1) if quick else (options.trials, options.repeats)
        runs = walls(bench, networks, trials, repeats)
        rows = of_policies(runs)
        print()
        common.table(rows, list(rows[0]))
        by_name = {row["policy"]: row for row in rows}
        predictive, interleaved = by_name["predictive"], by_name["interleaved"]
        checks += [
            common.at_most("wall, interleaved / sequential",
                           interleaved["of_sequential"], 1.0, "condition"),
            common.at_most("wall, predictive / interleaved",
                           predictive["wall_s"] / interleaved["wall_s"], 1.02, "condition"),
        ]  # fmt: skip
        figures |= {"rows": rows, "runs": runs, "trials": trials}
    if "latency" in parts:
        networks = list(SMALL[:2] if quick else SMALL)
        bench = Bench(networks, options.host_core, options.device_core)
        trials, repeats = (12, 1) if quick else (options.latency_trials, options.latency_repeats)
        print("\nlatency of networks tuned beside each other, over tuned alone:")
        found = latency(bench, networks, trials, repeats)
        ratio = interval([row["beside/alone"] for row in found])
        print(f"beside / alone: {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
        checks.append(common.at_most("latency beside / alone, lower end of the interval",
                                     ratio.low, 1.0, "condition"))  # fmt: skip
        figures |= {"latency": found, "latency_trials": trials}
    if "overhead" in parts:
        bench = Bench([TINY], options.host_core, options.device_core)
        print("\none job with the scheduler and without it:")
        costs = overhead(bench, TINY, 12 if quick else 48, 1 if quick else options.pairs)
        ratio = interval([row["ratio"] for row in costs])
        print(f"with / without: {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
        added = median([row["between_with"] - row["between_without"] for row in costs])
        checks += [
            common.at_most(
                "one job, with / without the scheduler", ratio.median, 1.02, "condition"
            ),
            common.at_most("time between stages, added share", added, 0.02, "condition"),
        ]
        figures |= {"overhead": costs}
    return common.finish("interleaving", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Four real jobs under each policy.")
    made.add_argument("--part", action="append", choices=PARTS)
    made.add_argument("--trials", type=int, default=64, help="of each network, for the walls")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--latency-trials", type=int, default=300, help="of each network")
    made.add_argument("--latency-repeats", type=int, default=2)
    made.add_argument("--pairs", type=int, default=10, help="for the scheduler's own cost")
    made.add_argument("--host-core", type=int, default=0)
    made.add_argument("--device-core", type=int, default=1)
    common.run(main, made)
