"""What one scheduler process can carry: events per second on one core, and what an event costs.

Mock jobs of ten lanes run in the simulator. The events of that run are then handled once more by a
new scheduler, nothing else (the core is pure: the same events, the same instructions), and that is
timed in CPU seconds of the process.

    .venv/bin/python benchmarks/scheduler_scale.py --json out.json
    .venv/bin/python benchmarks/scheduler_scale.py --source OLD/src --json out.json

With `--source` another version handles as many events of its own, in turn with this one, each time
in a process of its own: events per second, now over before.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common

LANES_PER_JOB = 10
#: Spread of the durations around the thesis's means.
CV = 0.5
FIXED_DEVICES = 100
#: Devices grow with the lanes or stay; or they grow and each is a host's cores as well.
PROPORTION, FIXED, SHARED = "in proportion", "fixed", "shared cores"
FLEETS = (PROPORTION, FIXED, SHARED)
POLICIES = ("predictive", "interleaved")


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.one is not None:
        policy, lanes, fleet = options.one
        print(json.dumps(measured(policy, int(lanes), fleet, 1, options.events)["events_per_s"]))
        return 0
    if options.source is not None:
        return pairs(options, started)
    sizes: tuple[int, ...] = (100, 1000, 10_000)
    repeats, events = options.repeats, 30_000
    if options.quick:
        sizes, repeats, events = (100, 400), 1, 5_000
    rows: list[dict[str, Any]] = []
    for policy in POLICIES:
        for fleet in FLEETS:
            for lanes in sizes:
                figures = measured(policy, lanes, fleet, repeats, events)
                rows.append({"policy": policy, "fleet": fleet, **figures})
                common.table(rows[-1:], [c for c in rows[-1] if c != "runs"])
                sys.stdout.flush()
    print()
    common.table(rows, [c for c in rows[0] if c != "runs"])
    figures = {"rows": rows, "lanes_per_job": LANES_PER_JOB, "cv": CV}
    return common.finish("scheduler_scale", started, figures, checks(rows), options.json)


def pairs(options: argparse.Namespace, started: float) -> int:
    """Each case with the source of another version and with this one, which comes first in turn."""
    from tunefleet.core.statistics import interval

    sides = {"before": options.source.resolve(), "now": Path(__file__).resolve().parents[1] / "src"}
    rows, found = [], []
    for policy in POLICIES:
        for fleet in FLEETS:
            rates: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(1 if options.quick else options.repeats):
                for side in sorted(sides, reverse=bool(number % 2)):
                    rates[side].append(_rate(sides[side], (policy, "1000", fleet), options.events))
            ratio = interval([n / b for n, b in zip(rates["now"], rates["before"], strict=True)])
            of = {side: interval(each).median for side, each in rates.items()}
            rows.append({"policy": policy, "fleet": fleet, **of, "now / before": ratio.median,
                         "from": ratio.low, "to": ratio.high})  # fmt: skip
            # Where the interval holds 1, nothing is shown to be worse.
            name = f"{policy}, devices {fleet}, events/s, now / before"
            found.append(common.at_least(name, ratio.high, 1.0, "condition"))
    common.table(rows, list(rows[0]))
    return common.finish("scheduler_scale", started, {"rows": rows}, found, options.json)


def _rate(source: Path, case: Sequence[str], events: int) -> float:
    command = [sys.executable, __file__, "--one", *case, "--events", str(events)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{source}: {ended.stderr.strip()[-500:]}")
    return float(ended.stdout)


def measured(policy: str, lanes: int, fleet: str, repeats: int, events: int) -> dict[str, Any]:
    """Median over repeats with their range; a run of few events is repeated until it counts."""
    from tunefleet.core.statistics import median
    from tunefleet.scheduler.mocks import mock_fleet

    rounds = max(3, events // (4 * lanes))
    devices = FIXED_DEVICES if fleet == FIXED else lanes // 10
    hosts = devices if fleet == SHARED else hosts_for(devices)
    machines = mock_fleet(hosts, devices, shared=fleet == SHARED)
    runs = [once(policy, lanes, machines, rounds) for _ in range(repeats)]
    rates = [run["events"] / run["handle_s"] for run in runs]
    whole = [run["events"] / run["simulation_s"] for run in runs]
    return {
        "lanes": lanes,
        "devices": devices,
        "hosts": hosts,
        "events": runs[0]["events"],
        "events_per_s": median(rates),
        "from": min(rates),
        "to": max(rates),
        "us_per_event": 1e6 / median(rates),
        "simulated_per_s": median(whole),
        "runs": runs,
    }


def hosts_for(devices: int) -> int:
    """Enough that neither side starves: a round takes 52.3 s of a host and 39.5 s of a device."""
    return -(-devices * 3 // 2)


def once(policy: str, lanes: int, fleet: Sequence[Any], rounds: int) -> dict[str, float]:
    from tunefleet.scheduler.durations import THESIS, Spread
    from tunefleet.scheduler.mocks import lane_names, mock_jobs
    from tunefleet.scheduler.policies import POLICIES as policies
    from tunefleet.scheduler.simulator import simulate

    mix = dict.fromkeys(lane_names(lanes // LANES_PER_JOB, LANES_PER_JOB), rounds)
    recorder = recording(policies[policy]())
    began = time.process_time()
    simulate(recorder, [*fleet, *mock_jobs(mix)], Spread(THESIS.seconds, CV, CV), keep=False)
    simulation_s = time.process_time() - began
    # Plans remember what they opened: jobs are submitted anew, everything else is as it was.
    count = len(fleet) + len(mock_jobs(mix))
    events = [*fleet, *mock_jobs(mix), *recorder.events[count:]]
    handle_s = handled(policies[policy](), events)
    return {"events": len(events), "handle_s": handle_s, "simulation_s": simulation_s}


def recording(policy: Any) -> Any:
    from tunefleet.scheduler.core import Scheduler

    class Recorder(Scheduler):
        def __init__(self) -> None:
            super().__init__(policy)
            self.events: list[Any] = []

        def handle(self, event: Any) -> list[Any]:
            self.events.append(event)
            return super().handle(event)

    return Recorder()


def handled(policy: Any, events: Sequence[Any]) -> float:
    """CPU seconds of handling these events and nothing else."""
    from tunefleet.scheduler.core import Scheduler

    scheduler = Scheduler(policy)
    # The recorded events are ours, a scheduler keeps none: the garbage collector must not walk
    # them on its account. What the scheduler makes is collected as ever.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    for event in events:
        scheduler.handle(event)
    took = time.process_time() - began
    gc.unfreeze()
    if scheduler.jobs:
        raise SystemExit("the events did not lead to the end of every job a second time")
    return took


def checks(rows: Sequence[dict[str, Any]]) -> list[common.Check]:
    found = []
    for policy in POLICIES:
        of = [row for row in rows if row["policy"] == policy]
        for fleet in (PROPORTION, SHARED):
            row = max((r for r in of if r["fleet"] == fleet), key=lambda r: r["lanes"])
            size = f"{row['lanes']:,} lanes, {row['devices']:,} devices ({fleet})"
            name = f"{policy}, {size}, events/s"
            found.append(common.at_least(name, row["events_per_s"], 20_000, "condition"))
        for fleet in FLEETS:
            costs = {r["lanes"]: r["us_per_event"] for r in of if r["fleet"] == fleet}
            few, many = min(costs), max(costs)
            name = f"{policy}, devices {fleet}, cost of an event, {many:,} / {few:,} lanes"
            found.append(common.at_most(name, costs[many] / costs[few], 2.0, "condition"))
    return found


if __name__ == "__main__":
    made = common.parser("Events per second of one scheduler process.")
    made.add_argument("--repeats", type=int, default=5)
    made.add_argument("--source", type=Path, help="the source of another version, in pairs")
    made.add_argument("--events", type=int, default=20_000, help="of a pair's run")
    made.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    common.run(main, made)
