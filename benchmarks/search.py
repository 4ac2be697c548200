"""What a pretrained cost model and schedule transfer save, beside stock MetaSchedule.

Latency over trials and over wall time of four searches of the same tasks:

    stock        meta_schedule.tune_tasks with its own settings, 64 trials per task, its import of
                 tensor intrinsics stubbed (as shipped it takes longer still)
    cold         tunefleet without a pretrained model and without transfer between tasks
    pretrained   the shipped cost model steers from the first trial
    transfer     and programs of tuned tasks are adapted to similar ones before any search: of a
                 seed's networks one after the other in one home, where each finds the schedules of
                 those before it (the first none); the next seed begins with the next network

All but the last start from nothing each.

The networks are not in the training data of the shipped model. The latency of a network is the sum
of its tasks' best ones by their occurrences. What is compared at the end are the winners of all
sides, measured by one worker in turn: "shipped" with stock's built by TVM alone, "alike" with all
built by tunefleet, whose exp and erf are quicker. Trials and time are those to stock's final
latency, with a side's readings of a task in the proportion of what its winner took at the end: the
machine is not as fast in every hour. Runs are kept in `--json OUT` as they end, and the
same command goes on where it stopped.

    .venv/bin/python benchmarks/search.py --json search.json
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import common
from searching import (
    SHIPPED,
    compare,
    curve,
    keep,
    latency_of,
    ours,
    parser,
    reached,
    run,
    runs_of,
    seeds_of,
    tasks_of,
)

NETWORKS = ("zoo:squeezenet", "zoo:shufflenet_v2", "zoo:vit_tiny")
SIDES = ("stock", "cold", "pretrained", "transfer")
PER_TASK = 64
#: Latencies are compared after these shares of stock's trials, besides at the end.
_SHARES = (0.05, 0.1, 0.2, 0.5)
#: What builds stock's winners, and its name in the table.
_STOCKS = {SHIPPED: "shipped", "stock": "alike"}


class _TimeIsOver(Exception):
    """Ends a search of MetaSchedule, which counts trials only."""


def stock(
    network: str,
    seed: int,
    trials: int,
    space: Callable[[], Any] = lambda: "post-order-apply",
    *,
    target: Any = None,
    limit_s: float | None = None,
) -> dict[str, Any]:
    """MetaSchedule's search, for this processor or another `target` of tunefleet's; `space` makes
    the space generator of a task. After `limit_s` it ends with its next measurements."""
    import importlib

    from tvm.s_tir import meta_schedule as ms

    from tunefleet.compiler.toolchain.host import native_target, to_tvm
    from tunefleet.compiler.toolchain.programs import load_program, trace_text

    target = target or native_target()
    # The schedule rules of processors with VNNI, and of GPUs with tensor cores, ask for these.
    kind = "x86" if target.kind == "llvm" else "cuda"
    importlib.import_module(f"tvm.s_tir.tensor_intrin.{kind}")
    tasks, target = tasks_of(network, target), to_tvm(target)
    contexts = [
        ms.TuneContext(
            load_program(w.task.program), target=target, space_generator=space(),
            search_strategy="evolutionary", task_name=w.task.task_id, rand_state=seed * 1000 + i,
            num_threads=os.cpu_count(),
        )
        for i, w in enumerate(tasks)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as work_dir:
        watch = _Watch(ms, limit_s)
        started = time.perf_counter()
        try:
            ms.tune_tasks(
                tasks=contexts, task_weights=[float(w.weight) for w in tasks], work_dir=work_dir,
                max_trials_global=trials, max_trials_per_task=trials, num_trials_per_iter=PER_TASK,
                measure_callbacks=[*ms.measure_callback.MeasureCallback.create("default"),
                                   watch.callback(started)],
            )  # fmt: skip
        except Exception:
            if not watch.is_over:
                raise
        wall_s = time.perf_counter() - started
    best: dict[str, tuple[float, str]] = {}
    for _, task_id, latency_s, trace in watch.seen:
        if latency_s < best.get(task_id, (float("inf"), ""))[0]:
            best[task_id] = (latency_s, trace_text(trace))
    return {
        "wall_s": wall_s,
        "trials": watch.count,
        "error": watch.error,
        "points": [[s, task_id, latency_s] for s, task_id, latency_s, _ in watch.seen],
        "best": {task_id: trace for task_id, (_, trace) in best.items()},
    }


class _Watch:
    """When stock measured what: MetaSchedule itself keeps no times."""

    def __init__(self, ms: Any, limit_s: float | None = None) -> None:
        self._ms = ms
        self._limit_s = limit_s
        self.is_over = False
        #: Of the last program that failed.
        self.error = ""
        self.seen: list[tuple[float, str, float, Any]] = []
        self.count = 0

    def callback(self, started: float) -> Any:
        import tvm

        watch = self

        @tvm.ir.utils.derived_object
        class Callback(self._ms.measure_callback.PyMeasureCallback):  # type: ignore[misc, name-defined]
            def apply(self, scheduler: Any, index: int, candidates: Any, builds: Any,
                      results: Any) -> None:  # fmt: skip
                now = time.perf_counter() - started
                name = str(scheduler.tasks_[index].ctx.task_name)
                for candidate, result in zip(candidates, results, strict=True):
                    watch.count += 1
                    if result.error_msg:
                        watch.error = str(result.error_msg)[-1000:]
                    if result.run_secs:
                        seconds = [float(s) for s in result.run_secs]
                        mean = sum(seconds) / len(seconds)
                        watch.seen.append((now, name, mean, candidate.sch.trace))
                if watch._limit_s is not None and now > watch._limit_s:
                    watch.is_over = True
                    raise _TimeIsOver

        return Callback()


def search(network: str, seed: str, side: str, trials: str, *homes: str) -> dict[str, Any]:
    """`homes` of the side with transfer: the one that it leaves, and of the network before."""
    from tunefleet.core.budget import Budget
    from tunefleet.core.settings import SHIPPED_MODEL

    if side == "stock":
        return stock(network, int(seed), int(trials))
    budget = Budget(trials=int(trials))
    if side != "transfer":
        model = SHIPPED_MODEL if side == "pretrained" else ""
        return ours(network, int(seed), budget, pretrained=model, transfer=False)
    after, *before = map(Path, homes)
    with tempfile.TemporaryDirectory() as folder:
        # A copy: of a search that is killed half-way the same command finds no records.
        home = Path(folder, "home")
        if before:
            shutil.copytree(before[0], home)
        found = ours(network, int(seed), budget, pretrained=SHIPPED_MODEL, transfer=True, home=home)
        shutil.copytree(home, after, dirs_exist_ok=True)
    return found


def main(options: argparse.Namespace) -> int:
    started = time.time()
    kept = runs_of(options.json)
    rows: list[dict[str, Any]] = []
    with _homes(options.json) as homes:
        for seed in seeds_of(options):
            first = seed % len(options.networks)
            before: list[str] = []
            for network in options.networks[first:] + options.networks[:first]:
                tasks = tasks_of(network)
                weights = {w.task.task_id: w.weight for w in tasks}
                trials = (4 if options.quick else options.per_task) * len(tasks)
                own = kept.setdefault(f"{network} {seed} {trials}", {})
                home = str(homes / f"seed-{seed}-{len(before)}")
                compare(
                    __file__, own, network, options.sides,
                    partial(_words, network, seed, trials, options.share, [home, *before[-1:]]),
                    partial(keep, options.json, started, kept),
                )  # fmt: skip
                before.append(home)
                rows += compared(network, seed, own, weights, options.sides)
                common.table(rows[-len(options.sides) :], list(rows[-1]))
    if options.plot:
        draw(options.plot, kept, options.networks, options.sides)
    figures = {"runs": kept, "rows": rows}
    return common.finish("search", started, figures, checks(rows), options.json)


@contextmanager
def _homes(path: Path | None) -> Iterator[Path]:
    """A folder for the homes of searches with transfer; it stays beside the file of figures."""
    if path is not None:
        yield path.with_suffix(".homes")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _words(
    network: str, seed: int, trials: int, share: float, homes: list[str], side: str
) -> tuple[Any, ...]:
    """What `search` is to do for a side."""
    budget = trials if side == "stock" else int(share * trials)
    return network, seed, side, budget, *(homes if side == "transfer" else [])


def compared(
    network: str, seed: int, own: dict[str, Any], weights: dict[str, int], sides: list[str]
) -> list[dict[str, Any]]:
    """A row of each side; times and trials are those to stock's final latency, built alike."""
    final = {side: latency_of(found, weights) for side, found in own["final"].items()}
    rows = []
    for side in sides:
        points = curve(own[side]["points"], weights, own["final"][side])
        row: dict[str, Any] = {
            "network": network, "seed": seed, "side": side, "trials": own[side]["trials"],
            "wall_s": own[side]["wall_s"], "final_ms": 1e3 * final[side],
        }  # fmt: skip
        for share in _SHARES:
            at = int(share * own[side]["trials"])
            known = [latency for _, number, latency in points if number <= at]
            row[f"ms at {share:.0%}"] = 1e3 * known[-1] if known else None
        if "stock" in sides and side != "stock":
            for built, name in _STOCKS.items():
                hit = reached(points, final[built])
                row[f"final / {name}"] = final[side] / final[built]
                row[f"fewer trials, {name}"] = own["stock"]["trials"] / hit[1] if hit else None
                row[f"less wall, {name}"] = own["stock"]["wall_s"] / hit[0] if hit else None
        if "stages_s" in own[side]:
            stages = own[side]["stages_s"]
            row["select+update"] = (stages["select"] + stages["update"]) / own[side]["wall_s"]
        rows.append(row)
    return [{name: row.get(name) for name in dict.fromkeys(n for r in rows for n in r)}
            for row in rows]  # fmt: skip


def draw(path: Path, kept: dict[str, Any], networks: list[str], sides: list[str]) -> None:
    """Latency over wall time and over trials, a row for each network, a line for each seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2 * len(networks)), layout="constrained")
    panels = figure.subplots(len(networks), 2, squeeze=False, sharey="row")
    for network, row in zip(networks, panels, strict=True):
        weights = {w.task.task_id: w.weight for w in tasks_of(network)}
        ended = [o for name, o in kept.items() if name.split()[0] == network and "final" in o]
        for own in ended:
            for number, side in enumerate(s for s in sides if s in own):
                points = curve(own[side]["points"], weights, own["final"][side])
                label = side if own is ended[0] else None
                for axes, place in zip(row, (0, 1), strict=True):
                    axes.step(
                        [p[place] for p in points], [1e3 * p[2] for p in points],
                        where="post", color=f"C{number}", alpha=0.8, lw=1.2, label=label,
                    )  # fmt: skip
        for axes, text in zip(row, ("wall time, s", "trials"), strict=True):
            axes.set(xscale="log", yscale="log", xlabel=text, title=network)
            axes.grid(True, which="both", alpha=0.25)
        row[0].set_ylabel("sum of the tasks' best, ms")
        row[1].legend(frameon=False)
    figure.savefig(path)


def checks(rows: list[dict[str, Any]]) -> list[common.Check]:
    found = []
    sides = {r["side"] for r in rows}
    guided = sorted(sides & {"pretrained", "transfer"}) if "stock" in sides else []
    for side, name in product(guided, _STOCKS.values()):
        mine = [r for r in rows if r["side"] == side]
        for what, bound in (("fewer trials", 9.3), ("less wall", 30.0)):
            middle = statistics.median(r[f"{what}, {name}"] or 0.0 for r in mine)
            found.append(common.at_least(f"{side}: {what}, {name}, median", middle, bound, "aim"))
        middle = statistics.median(r[f"final / {name}"] for r in mine)
        found.append(common.at_most(f"{side}: final / {name}, median", middle, 1 / 1.1, "aim"))
    shares = [r["select+update"] for r in rows if r.get("select+update")]
    if shares:
        found.append(common.at_most("select + update, worst", max(shares), 0.15, "aim"))
    return found


if __name__ == "__main__":
    made = parser("Whole networks, from nothing: stock MetaSchedule and tunefleet.", NETWORKS, 3)
    made.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    made.add_argument("--per-task", type=int, default=PER_TASK, help="trials of each task")
    made.add_argument("--plot", type=Path, help="draw the curves into this file")
    made.add_argument("--share", type=float, default=1.0, help="of stock's trials for ours")
    run(main, search, made)
