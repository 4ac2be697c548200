"""Do builds disturb measurements? The same programs measured alone and while the host builds.

Modes alternate within each round: alone, beside builds on other cores (what the exclusivity rule
allows), alone again (what the machine does by itself), and beside builds on the same cores (what
the rule prevents). A program's figure in a mode is the 10th percentile of all its repeats over the
rounds; its shift is that figure over the one of `alone`. Then two commands of two terminals tune in
one home (`interference_commands.py`).

    .venv/bin/python benchmarks/interference.py --json out.json
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
import interference_commands

NETWORKS = ("zoo:squeezenet", "zoo:mobilenet_v2", "zoo:resnet18")
MODES = ("alone", "apart", "again", "shared")


def programs(machine: Any, count: int) -> list[Any]:
    """Built programs of random schedules, as many of each task as it takes to get `count`."""
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.settings import SearchSettings
    from tunefleet.search.selection import SelectRequest
    from tunefleet.stages import work
    from tunefleet.stages.importing import import_network

    target = native_target(1)
    tasks = [w.task for name in NETWORKS for w in import_network(name, target).tasks]
    tasks = sorted({t.task_id: t for t in tasks}.values(), key=lambda t: -t.flops)[: 2 * count]
    each = -(-3 * count // (2 * len(tasks)))
    settings = SearchSettings(population=24, generations=0)
    wanted = []
    for task in tasks:
        request = SelectRequest(task.program, target, settings, each, 1, (), frozenset(), ())
        chosen = machine.lead.call(work.run_select, request, None, "random", b"").candidates
        wanted += [(task.program, target, c.candidate_id, c.trace, str(machine.scratch))
                   for c in chosen]  # fmt: skip
    from tunefleet.core.trial import Built

    built = machine.host.map(work.build_candidate, wanted, 60.0)
    good = [(b, w) for b, w in zip(built, wanted, strict=True) if isinstance(b, Built)]
    step = max(1, len(good) // count)
    return good[::step][:count]


@contextmanager
def building(pool: Any, wanted: list[Any]) -> Iterator[None]:
    """Builds go on in `pool` for the time of the block; returns when they have ended."""
    from concurrent.futures import CancelledError

    from tunefleet.stages import work
    from tunefleet.workers.pool import CallScope

    scope = CallScope()

    def keep_on() -> None:
        with scope:
            try:
                while True:
                    pool.map(work.build_candidate, wanted, 60.0)
            except CancelledError:
                pool.restart()

    thread = threading.Thread(target=keep_on)
    thread.start()
    time.sleep(2.0)  # workers that were restarted load the compiler first
    try:
        yield
    finally:
        scope.cancel()
        thread.join()


def measured(machine: Any, built: list[Any]) -> list[tuple[float, ...]]:
    from tunefleet.core.settings import MeasureSettings
    from tunefleet.stages import work

    settings = MeasureSettings()
    return [machine.device.call(work.profile_candidate, b, settings, None).latencies_s
            for b in built]  # fmt: skip


def main(options: argparse.Namespace) -> int:
    from tunefleet.core.statistics import median
    from tunefleet.core.trial import ranking_latency
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.workers.machine import Machine
    from tunefleet.workers.pool import WorkerConfig, WorkerPool

    started = time.time()
    count, rounds = (6, 2) if options.quick else (options.programs, options.rounds)
    host, device = options.host_core, options.device_core
    layout = machine_layout(1, (host,), (device,)).layout
    repeats: dict[str, list[list[tuple[float, ...]]]] = {mode: [] for mode in MODES}
    with Machine(layout) as machine, tempfile.TemporaryDirectory() as logs:
        chosen = programs(machine, count)
        built, wanted = [b for b, _ in chosen], [w for _, w in chosen]
        print(f"{len(built)} programs, {rounds} rounds")
        # Without the rule: as many builders as there are cores, the device's among them.
        everywhere = WorkerConfig(1, 8.0, str(Path(logs) / "log"), (host, device))
        with WorkerPool(2, everywhere) as shared:
            measured(machine, built)  # the first run of a worker is never like the next
            for number in range(rounds):
                turn = number % len(MODES)
                for mode in MODES[turn:] + MODES[:turn]:
                    if mode in ("alone", "again"):
                        found = measured(machine, built)
                    else:
                        with building(machine.host if mode == "apart" else shared, wanted):
                            found = measured(machine, built)
                    repeats[mode].append(found)
                print(f"round {number + 1}: {time.time() - started:.0f} s", flush=True)
    figure = {mode: [ranking_latency(tuple(itertools.chain(*(r[i] for r in of))))
                     for i in range(len(built))] for mode, of in repeats.items()}  # fmt: skip
    medians = {mode: [[median(list(r[i])) for r in of] for i in range(len(built))]
               for mode, of in repeats.items()}  # fmt: skip
    rows = []
    for mode in MODES:
        shifts = [b / a - 1 for a, b in zip(figure["alone"], figure[mode], strict=True)]
        sizes = sorted(abs(s) for s in shifts)
        spread = [max(of) / min(of) - 1 for of in medians[mode]]
        rows.append({
            "mode": mode, "shift": median(shifts), "abs_shift": median(sizes),
            "abs_shift_p90": sizes[int(0.9 * (len(sizes) - 1))], "worst": sizes[-1],
            "rank_correlation": spearman(figure["alone"], figure[mode]),
            "median_jumps": median(spread), "median_jumps_worst": max(spread),
        })  # fmt: skip
    print("\nshifts are relative to alone; jumps are of one program's median from round to round")
    common.table(rows, list(rows[0]))
    by_mode: dict[Any, dict[str, Any]] = {row["mode"]: row for row in rows}
    checks = [
        common.at_most("apart: shift of the 10th percentile, median of the programs",
                       by_mode["apart"]["abs_shift"], 0.02, "condition"),
        common.at_least("apart: rank correlation with alone",
                        by_mode["apart"]["rank_correlation"], 0.99, "aim"),
    ]  # fmt: skip
    commands, more = interference_commands.compared(options)
    checks += more
    figures = {"rows": rows, "programs": len(built), "rounds": rounds, "p10_s": figure,
               "commands": commands}  # fmt: skip
    return common.finish("interference", started, figures, checks, options.json)


def spearman(one: list[float], other: list[float]) -> float:
    """Rank correlation of two orders without ties."""
    ranks = [{i: r for r, i in enumerate(sorted(range(len(x)), key=x.__getitem__))}
             for x in (one, other)]  # fmt: skip
    n = len(one)
    distance = sum((ranks[0][i] - ranks[1][i]) ** 2 for i in range(n))
    return 1 - 6 * distance / (n * (n * n - 1)) if n > 1 else 1.0


if __name__ == "__main__":
    made = common.parser("Measurements alone and beside builds.")
    made.add_argument("--programs", type=int, default=50)
    made.add_argument("--rounds", type=int, default=8)
    made.add_argument("--command-rounds", type=int, default=3, help="rounds of two commands")
    made.add_argument("--host-core", type=int, default=0)
    made.add_argument("--device-core", type=int, default=1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    common.run(main, made)
