"""What the benchmarks of whole searches share: tunefleet's own searches, winners measured in turn,
fresh processes, and files that say how far a benchmark has come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trial_throughput import STUB

if TYPE_CHECKING:
    from tunefleet.core.budget import Budget


def tasks_of(network: str) -> list[Any]:
    from tunefleet.compiler.host import native_target
    from tunefleet.compiler.toolchain import load_tvm

    load_tvm()
    from tunefleet.fleet.network_work import import_network

    return import_network(network, native_target())[2]


def ours(
    network: str, seed: int, budget: Budget, *, pretrained: bool, transfer: bool
) -> dict[str, Any]:
    """A search from an empty store, with when it measured what."""
    from tunefleet.compiler.host import device_identity, machine_layout, native_target
    from tunefleet.compiler.toolchain import toolchain_identity
    from tunefleet.core.job import JobSpec
    from tunefleet.core.network import NetworkInfo
    from tunefleet.core.settings import SHIPPED_MODEL, SearchSettings, TuneSettings
    from tunefleet.core.stage import StageKind
    from tunefleet.costmodel.registry import registry_of
    from tunefleet.fleet.local import LocalFleet

    tasks, target = tasks_of(network), native_target()
    model = registry_of(None).get(SHIPPED_MODEL).card.id if pretrained else ""
    search = replace(SearchSettings(), seed=seed, pretrained=model)
    settings = TuneSettings(search=search, transfer=transfer)
    spec = JobSpec(
        NetworkInfo(network, network, network, (), ()), target, device_identity(),
        toolchain_identity(), budget, settings,
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
        for w in tasks_of(network):
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


def in_process(script: str, what: str, *words: str) -> Any:
    """What a benchmark's worker writes, in a fresh process; for stock a slow import is stubbed."""
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
                [sys.executable, script, "--worker", what, *words, str(out)],
                env=environment, stdout=stream, stderr=stream, check=False,
            )  # fmt: skip
        if process.returncode != 0:
            raise RuntimeError(f"{what} {words}: {log.read_text()[-2000:]}")
        return json.loads(out.read_text())


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


def runs_of(path: Path | None) -> dict[str, Any]:
    """The runs that the same command has made before."""
    if path is None or not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())["figures"]["runs"]
    return found


def keep(path: Path | None, started: float, kept: dict[str, Any]) -> None:
    if path is not None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"figures": {"runs": kept}, "started": started}))
        draft.replace(path)
