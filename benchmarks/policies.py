"""What each policy makes of recorded rounds: its makespan against what no policy can beat.

Random mixes of jobs, replayed in the simulator on fleets of several sizes. Where the durations come
from and what is assumed about them: recorded_rounds.py. Also the thesis's own case: the idle shares
of one job, and what interleaving makes of them.

    .venv/bin/python benchmarks/policies.py --json out.json
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import common
import recorded_rounds

#: (devices, hosts)
FLEETS = ((1, 1), (2, 2), (2, 1), (8, 8), (8, 2))
JOBS = (2, 4, 8, 32)
#: Tasks of a job: from one to so many. A job of the thesis has one, and nothing of its own to
#: interleave.
MOST_LANES = (8, 1)
POLICIES = ("sequential", "synchronous", "interleaved", "predictive")
#: predictive whose lanes may not look ahead, as those of the other policies may not.
STRICT = "no look-ahead"
#: Rounds of the thesis's job: 14.5 hours of 91.8 s.
THESIS_ROUNDS = 569


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if not options.data.is_dir():
        raise common.Skip(f"no recorded rounds: {options.data} is missing")
    sources = recorded_rounds.load(options.data)
    print("networks by source:", [len(kind) for kind in sources], flush=True)
    idle = idle_shares(20 if options.quick else THESIS_ROUNDS)
    common.table(idle, list(idle[0]))
    print()
    cells = []
    for most_lanes in MOST_LANES:
        for jobs in JOBS:
            for devices, hosts in FLEETS:
                began = time.time()
                cell = {"tasks": most_lanes, "jobs": jobs, "devices": devices, "hosts": hosts}
                mixes = (random_mix(sources, jobs, most_lanes, seed)
                         for seed in range(3 if options.quick else options.mixes))  # fmt: skip
                cells.append(cell | {"runs": [run(mix, devices, hosts) for mix in mixes]})
                row = summary(cells[-1])
                common.table([row], list(row))
                print(f"  {time.time() - began:.0f} s", flush=True)
    rows = [summary(cell) for cell in cells]
    print()
    common.table(rows, list(rows[0]))
    figures = {"rows": rows, "idle": idle, "cells": cells, "mixes": options.mixes}
    return common.finish("policies", started, figures, checks(cells), options.json)


def random_mix(sources: Any, jobs: int, most_lanes: int, seed: int) -> Any:
    """A replay of so many random jobs; the same for every fleet."""
    from tunefleet.scheduler.durations import Replay

    rng = random.Random(f"{seed}/{jobs}/{most_lanes}")
    lanes = {}
    for number in range(jobs):
        for index, rounds in enumerate(recorded_rounds.random_job(rng, sources, most_lanes)):
            lanes[f"job{number}", f"job{number}.task{index}"] = tuple(rounds)
    return Replay(lanes)


def run(replay: Any, devices: int, hosts: int) -> dict[str, Any]:
    """One mix under every policy: makespans by the lower bound of lanes that do not look ahead.

    A lane that looks ahead can be shorter, so predictive is also given over its own bound.
    """
    from tunefleet.scheduler import bounds

    rounds = {name: len(of_lane) for name, of_lane in replay.lanes.items()}
    found: dict[str, Any] = {"lanes": len(rounds)}
    for policy in POLICIES:
        simulation = simulated(policy, replay, rounds, devices, hosts)
        if "bound_s" not in found:  # the work is the same whatever the policy
            bound = bounds.lower_bound(simulation)
            found |= {"bound_s": bound.seconds, "limit": bound.limit.split()[0]}
        found[policy] = simulation.makespan_s / found["bound_s"]
    found["own bound"] = simulation.makespan_s / bounds.lower_bound(simulation).seconds
    strict = simulated("predictive", replay, rounds, devices, hosts, lookahead=False)
    found[STRICT] = strict.makespan_s / found["bound_s"]
    return found


def simulated(
    policy: str,
    durations: Any,
    mix: Mapping[Any, int],
    devices: int,
    hosts: int,
    lookahead: bool | None = None,
) -> Any:
    from tunefleet.scheduler.core import Scheduler
    from tunefleet.scheduler.mocks import mock_fleet, mock_jobs
    from tunefleet.scheduler.policies import POLICIES as policies
    from tunefleet.scheduler.simulator import simulate

    scheduler = Scheduler(policies[policy]())
    arrivals: list[Any] = [*mock_fleet(hosts, devices), *mock_jobs(mix, lookahead=lookahead)]
    return simulate(scheduler, arrivals, durations)


def summary(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Median and worst of each policy; the worst of predictive against interleaved."""
    from tunefleet.core.statistics import median

    runs = cell["runs"]
    limits = Counter(r["limit"] for r in runs)
    row = {name: cell[name] for name in ("tasks", "jobs", "devices", "hosts")}
    row["limited by"] = ", ".join(f"{name} {count}" for name, count in limits.most_common())
    for side in (*POLICIES, "own bound", STRICT):
        ratios = [r[side] for r in runs]
        row[side] = f"{median(ratios):.3f} ({max(ratios):.3f})"
    worst = max(r["predictive"] / r["interleaved"] for r in runs)
    row["predictive / interleaved"] = f"{worst:.3f}"
    return row


def idle_shares(rounds: int) -> list[dict[str, Any]]:
    """One host and one device with the thesis's durations: one job as without a scheduler, then
    several. Hours are per job."""
    from tunefleet.scheduler import bounds
    from tunefleet.scheduler.durations import THESIS
    from tunefleet.scheduler.mocks import lane_names
    from tunefleet.scheduler.values import Role

    rows = []
    for policy, counts in (("sequential", (1,)), ("interleaved", (2, 4, 8)),
                           ("predictive", (2, 4, 8))):  # fmt: skip
        for jobs in counts:
            mix = dict.fromkeys(lane_names(jobs, 1), rounds)
            found = simulated(policy, THESIS, mix, devices=1, hosts=1)
            used = bounds.role_utilisation(found)
            rows.append({
                "policy": policy,
                "jobs": jobs,
                "client idle, %": 100 * (1 - used[Role.HOST]),
                "target idle, %": 100 * (1 - used[Role.DEVICE]),
                "hours per job": found.makespan_s / 3600 / jobs,
                "over bound": found.makespan_s / bounds.lower_bound(found).seconds,
            })  # fmt: skip
    return rows


def checks(cells: Sequence[Mapping[str, Any]]) -> list[common.Check]:
    """Bounds of predictive where there are four jobs or more per device; nowhere behind
    interleaved."""
    from tunefleet.core.statistics import median

    found = []
    for cell in cells:
        if cell["jobs"] < 4 * cell["devices"]:
            continue
        ratios = [r["predictive"] for r in cell["runs"]]
        size = ", ".join(f"{cell[n]} {n}" for n in ("tasks", "jobs", "devices", "hosts"))
        name = f"predictive, {size}"
        found.append(common.at_most(f"{name}, median", median(ratios), 1.05, "condition"))
        found.append(common.at_most(f"{name}, worst", max(ratios), 1.15, "condition"))
    against = max(r["predictive"] / r["interleaved"] for cell in cells for r in cell["runs"])
    name = "predictive / interleaved, worst of all mixes"
    found.append(common.at_most(name, against, 1.02, "condition"))
    return found


if __name__ == "__main__":
    made = common.parser("Makespans of the policies on recorded rounds.")
    made.add_argument("--data", type=Path, default=common.DATA)
    made.add_argument("--mixes", type=int, default=100)
    common.run(main, made)
