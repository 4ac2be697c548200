"""What the benchmarks of searches share: tunefleet's own searches, winners measured in turn, fresh
processes, and files that say how far a benchmark has come."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common

if TYPE_CHECKING:
    from tunefleet.core.budget import Budget
    from tunefleet.core.job import Job
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.stage import StageRun
    from tunefleet.core.target import Target
    from tunefleet.core.trial import Trial
    from tunefleet.store import Store

#: Stock's winners, built by TVM alone.
SHIPPED = "stock as shipped"

#: All that `--quick` searches, with one seed.
_QUICK_NETWORK = "zoo:tiny_cnn"

#: How often winners are measured, the whole network each time.
_PASSES = 5

#: `sitecustomize` of a process in which TVM's slow import of tensor intrinsics is left out.
STUB = """
import importlib.util, os, sys, types
spec = importlib.util.find_spec("tvm")
if spec is not None:
    stub = types.ModuleType("tvm.s_tir.tensor_intrin")
    stub.__path__ = [os.path.join(os.path.dirname(spec.origin), "s_tir", "tensor_intrin")]
    sys.modules["tvm.s_tir.tensor_intrin"] = stub
"""


def tasks_of(network: str, target: Target | None = None) -> list[Any]:
    """Of a network on this processor, or for another target."""
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import native_target

    load_tvm()
    from tunefleet.stages.importing import import_network

    return import_network(network, target or native_target()).tasks


@dataclass(frozen=True)
class Searched:
    """A search that has ended: its job in a store that is there for the `with` block, seconds that
    it took, and since the epoch, when it began."""

    store: Store
    job: Job
    wall_s: float
    began: float


@contextmanager
def searched(
    name: str,
    tasks: Sequence[Any],
    budget: Budget,
    settings: TuneSettings,
    home: Path | None = None,
) -> Iterator[Searched]:
    """tunefleet's search of tasks (WeightedTask) on this machine, with a home's store or an empty
    one."""
    from tunefleet.compiler.toolchain import toolchain_identity
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.job import JobSpec
    from tunefleet.core.network import NetworkInfo
    from tunefleet.fleet.live import search_of
    from tunefleet.fleet.local import LocalFleet
    from tunefleet.hardware.processor import device_identity, machine_layout

    target = native_target()
    spec = JobSpec(
        NetworkInfo(name, name, name, (), ()), target, device_identity(), toolchain_identity(),
        budget, settings,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as empty:
        fleet = LocalFleet(machine_layout().layout, home or Path(empty))
        job = fleet.store.jobs.open(spec, job_id=uuid.uuid4().hex, now=time.time())
        fleet.store.work.put_tasks(job.job_id, tasks)
        started, began = time.perf_counter(), time.time()
        shell = fleet.shell()
        shell.submit(search_of(fleet.store, job, lambda event: None))
        shell.run()
        yield Searched(fleet.store, job, time.perf_counter() - started, began)
        fleet.close()


def ours(
    network: str,
    seed: int,
    budget: Budget,
    *,
    pretrained: str,
    transfer: bool,
    home: Path | None = None,
) -> dict[str, Any]:
    """A search of a network, with when it measured what; what the home knew comes first.
    `pretrained` is the cost model that steers from the first trial, shipped or the home's; "" is
    none.

    "rounds" of a task: seconds of each one's stages, and what it found that was better than all
    before, as [seconds, latency, trace] or [seconds].
    """
    from tunefleet.core.identity import Tier
    from tunefleet.core.settings import SearchSettings, TuneSettings
    from tunefleet.core.stage import StageKind
    from tunefleet.costmodel.registry import registry_of
    from tunefleet.stages.place import JobTask
    from tunefleet.stages.records import known_records

    tasks = tasks_of(network)
    model = registry_of(home).get(pretrained).card.id if pretrained else ""
    search = replace(SearchSettings(), seed=seed, pretrained=model)
    settings = TuneSettings(search=search, transfer=transfer)
    with searched(network, tasks, budget, settings, home) as done:
        job_id = done.job.job_id
        runs = done.store.work.stages(job_id)
        found = {w.task.task_id: done.store.records.trials(job_id, w.task.task_id) for w in tasks}
        known = {
            w.task.task_id: known_records(done.store, JobTask(done.job, w.task), Tier.EXACT, 1)
            for w in tasks
        }
    ended = {
        (r.key.task_id, r.key.iteration): r.started_at + r.seconds - done.began
        for r in runs if r.key.kind is StageKind.PROFILE
    }  # fmt: skip
    points, best = [], {}
    for task_id, records in known.items():
        for record in records:
            points.append([0.0, task_id, record.measurement.latency_s])
            best[task_id] = (record.measurement.latency_s, record.candidate.trace)
    for task_id, trials in found.items():
        for trial in trials:
            if trial.latency_s is None:
                continue
            points.append([ended[task_id, trial.iteration], task_id, trial.latency_s])
            if trial.latency_s < best.get(task_id, (float("inf"), ""))[0]:
                best[task_id] = (trial.latency_s, trial.candidate.trace)
    return {
        "wall_s": done.wall_s,
        "trials": sum(map(len, found.values())),
        "points": sorted(points),
        "rounds": {task_id: rounds_of(task_id, runs, trials) for task_id, trials in found.items()},
        "stages_s": {str(k): sum(r.seconds for r in runs if r.key.kind is k) for k in StageKind},
        "best": {task_id: trace for task_id, (_, trace) in best.items()},
    }


def rounds_of(task_id: str, runs: Sequence[StageRun], trials: Sequence[Trial]) -> list[list[Any]]:
    """As `ours` says."""
    seconds: dict[int, float] = defaultdict(float)
    for run in runs:
        if run.key.task_id == task_id and run.key.iteration >= 0:
            seconds[run.key.iteration] += run.seconds
    best = math.inf
    found: list[list[Any]] = []
    for iteration in sorted(seconds):
        found.append([seconds[iteration]])
        for trial in trials:
            latency_s = trial.latency_s
            if trial.iteration == iteration and latency_s is not None and latency_s < best:
                best = latency_s
                found[-1] = [seconds[iteration], best, trial.candidate.trace]
    return found


def remeasured(network: str, winners: dict[str, dict[str, str]]) -> dict[str, dict[str, float]]:
    """Seconds of every side's winner of every task, measured in turn by one worker.

    All are built by tunefleet; stock's once more by TVM alone, as SHIPPED. The median of `_PASSES`
    over the network: some seconds of a shared machine are twice as slow as others, and where its
    buffers happen to lie makes a program up to half as slow again.
    """
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.settings import TuneSettings
    from tunefleet.core.trial import Built, Measurement
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.stages import work
    from tunefleet.workers.machine import Machine

    target, settings = native_target(), TuneSettings()
    if "stock" in winners:
        winners = winners | {SHIPPED: winners["stock"]}
    found: dict[str, dict[str, list[float]]] = {side: defaultdict(list) for side in winners}
    alone = ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), initializer=keep_tvm_as_it_is
    )
    with Machine(machine_layout().layout) as machine, alone:
        built: dict[str, list[tuple[str, Built]]] = defaultdict(list)
        for w in tasks_of(network):
            task_id = w.task.task_id
            for side, traces in winners.items():
                if task_id in traces:
                    words = (
                        w.task.program, target, f"{task_id}-{len(built[task_id])}",
                        traces[task_id], str(machine.scratch),
                    )  # fmt: skip
                    made: Any
                    if side == SHIPPED:
                        made = alone.submit(work.build_candidate, *words).result()
                    else:
                        made = machine.host.call(work.build_candidate, *words, timeout_s=60)
                    if isinstance(made, Built):
                        built[task_id].append((side, made))
        for _ in range(_PASSES):
            for task_id, programs in built.items():
                results: Any = machine.device.call(
                    work.profile_interleaved, [p for _, p in programs], settings.measure,
                    timeout_s=300,
                )  # fmt: skip
                for (side, _), result in zip(programs, results, strict=True):
                    if isinstance(result, Measurement):
                        found[side][task_id].append(result.latency_s)
    return {
        side: {task_id: statistics.median(seconds) for task_id, seconds in of_tasks.items()}
        for side, of_tasks in found.items()
    }


def keep_tvm_as_it_is() -> None:
    """Before anything else loads TVM: this process makes code by its rules alone."""
    from tunefleet.compiler.toolchain import loading

    vars(loading)["use_vector_functions"] = lambda: None
    loading.load_tvm()


def compare(
    script: str,
    own: dict[str, Any],
    network: str,
    sides: Sequence[str],
    words: Callable[[str], Sequence[Any]],
    keep: Callable[[], None],
) -> None:
    """Make the runs of all sides that `own` lacks and measure their winners as "final".

    The benchmark `script` makes a run when it is called with `--worker search` and the `words` of
    a side (`work`); `keep` is called after each.
    """
    for side in sides:
        if side not in own:
            own[side] = in_process(script, "search", *map(str, words(side)))
            print(f"{network} {side}: {own[side]['wall_s']:.0f} s", flush=True)
            keep()
    if set(own.get("final", {})) - {SHIPPED} != set(sides):
        own["final"] = measured(script, network, {side: own[side]["best"] for side in sides})
        keep()


def measured(
    script: str, network: str, winners: dict[str, dict[str, str]]
) -> dict[str, dict[str, float]]:
    """`remeasured` in a fresh process."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        json.dump(winners, file)
        file.flush()
        found: dict[str, dict[str, float]] = in_process(script, "measure", network, file.name)
        return found


def parser(description: str, networks: Sequence[str], seeds: int) -> argparse.ArgumentParser:
    """Options of every benchmark that searches networks; `run` takes it."""
    made = common.parser(description)
    made.add_argument("--networks", nargs="+", default=list(networks))
    made.add_argument("--seeds", type=int, default=seeds)
    made.add_argument("--first-seed", type=int, default=0, help="where others were run before")
    made.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    return made


def seeds_of(options: argparse.Namespace) -> range:
    return range(options.first_seed, options.first_seed + options.seeds)


def run(
    main: Callable[[argparse.Namespace], int],
    search: Callable[..., dict[str, Any]],
    made: argparse.ArgumentParser,
) -> None:
    """The benchmark, or in a process that it started (`in_process`) the worker's part."""
    words = made.parse_args().worker
    if words:
        work(search, *words)
    else:
        common.run(partial(_sized, main), made)


def _sized(main: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    if options.quick:
        options.networks, options.seeds = [_QUICK_NETWORK], 1
    return main(options)


def work(search: Callable[..., dict[str, Any]], what: str, *words: str) -> None:
    """What a benchmark does with the words after `--worker`: the last one is a file to write."""
    if what == "search":
        found: Any = search(*words[:-1])
    else:
        network, winners = words[:-1]
        found = remeasured(network, json.loads(Path(winners).read_text(encoding="utf-8")))
    Path(words[-1]).write_text(json.dumps(found), encoding="utf-8")


def in_process(script: str, what: str, *words: str) -> Any:
    """What a benchmark's worker writes, in a fresh process; for stock a slow import is stubbed."""
    with tempfile.TemporaryDirectory() as folder:
        environment, out = dict(os.environ), Path(folder, "out.json")
        if "stock" in words:
            from tunefleet.compiler.toolchain.host import native_target

            Path(folder, "sitecustomize.py").write_text(STUB, encoding="utf-8")
            environment["PYTHONPATH"] = folder + os.pathsep + environment.get("PYTHONPATH", "")
            environment["TVM_NUM_THREADS"] = str(native_target().threads)
        log = Path(folder, "log")
        with log.open("w", encoding="utf-8") as stream:
            process = subprocess.run(
                [sys.executable, script, "--worker", what, *words, str(out)],
                env=environment, stdout=stream, stderr=stream, check=False,
            )  # fmt: skip
        if process.returncode != 0:
            raise RuntimeError(f"{what} {words}: {log.read_text(encoding='utf-8')[-2000:]}")
        return json.loads(out.read_text(encoding="utf-8"))


def latency_of(found: dict[str, float], weights: dict[str, int]) -> float:
    """Seconds of a network whose tasks take so long; infinite where one has no program."""
    return sum(weight * found.get(task_id, math.inf) for task_id, weight in weights.items())


def curve(
    points: list[Any], weights: dict[str, int], final: dict[str, float]
) -> list[tuple[float, int, float]]:
    """(wall seconds, trials so far, latency of the network) from where every task has one.

    A search's own readings of a task are taken in the proportion of what its winner took in turn
    with the other sides' (`final`): the machine is not as fast in every minute, and the best of
    many readings is a lucky one.
    """
    read: dict[str, float] = {}
    for _, task_id, latency_s in points:
        read[task_id] = min(latency_s, read.get(task_id, latency_s))
    scale = {task_id: final.get(task_id, math.inf) / seconds for task_id, seconds in read.items()}
    best: dict[str, float] = {}
    found = []
    for number, (seconds, task_id, latency_s) in enumerate(points, 1):
        best[task_id] = min(latency_s * scale[task_id], best.get(task_id, math.inf))
        if len(best) == len(weights):
            found.append((seconds, number, latency_of(best, weights)))
    return found


def reached(points: list[tuple[float, int, float]], latency_s: float) -> tuple[float, int] | None:
    """(wall seconds, trials) at which a latency was reached."""
    return next(((s, n) for s, n, latency in points if latency <= latency_s), None)


def runs_of(path: Path | None) -> dict[str, Any]:
    """The runs that the same command has made before."""
    if path is None or not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["figures"]["runs"]
    return found


def keep(path: Path | None, started: float, kept: dict[str, Any]) -> None:
    if path is not None:
        draft = path.with_suffix(".draft")
        draft.write_text(
            json.dumps({"figures": {"runs": kept}, "started": started}), encoding="utf-8"
        )
        draft.replace(path)
