"""Jobs that arrive at random moments at a running scheduler, under each policy.

Three parts, in the simulator, on fleets of 1, 2 and 4 devices with as many hosts:

- arrivals: eight jobs of recorded rounds (recorded_rounds.py) of one owner; makespan over a bound
  that counts the arrivals (scheduler/bounds.py), mean time from a job's arrival to its result.
- deadlines: three of the eight have one. How many can be met in this simulator is found by trying
  every order of the three with all durations known (arrivals_witness.py), and by the policies.
- owners: three owners, one with many jobs, one with a single one, one whose job has a higher
  priority; shares of the device time while all have jobs, against shares by priority.

- with `--one` instead of these: one deadline among 20 other jobs (deadline_among.py);
- with `--real` instead of these: eight small networks arrive at a `tunefleet serve` of this
  machine, and then in the simulator with the recorded durations (arrivals_real.py).

    .venv/bin/python benchmarks/arrivals.py --json out.json
    .venv/bin/python benchmarks/arrivals.py --real --json out.json
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import arrivals_real
import arrivals_witness
import common
import deadline_among
import recorded_rounds

JOBS = 8
DEVICES = (1, 2, 4)
MOST_LANES = 8
POLICIES = ("sequential", "synchronous", "interleaved", "predictive")
#: Arrivals follow each other at this share of the time that the fleet takes for a job in the mean.
LOAD = 0.5
#: Jobs with a deadline, and the factors of the least time of each alone within which it is due.
DUE, FACTORS = 3, (1.2, 3.0)
#: Priority and number of jobs of each owner.
OWNERS = {"many": (0, 5), "one": (0, 1), "urgent": (1, 1)}
#: Tasks of each owner's job, and rounds of a task: enough that every owner can use its share.
OWNED_LANES, OWNED_ROUNDS = 8, 30


def main(options: argparse.Namespace) -> int:
    started = time.time()
    if options.real:
        return common.finish("arrivals", started, *arrivals_real.compared(options), options.json)
    if not options.data.is_dir():
        raise common.Skip(f"no recorded rounds: {options.data} is missing")
    sources = recorded_rounds.load(options.data)
    draws = 2 if options.quick else options.draws
    seeds = range(options.first_seed, options.first_seed + draws)
    if options.one:
        return common.finish(
            "arrivals_one", started, *deadline_among.compared(sources, seeds), options.json
        )
    rows: list[dict[str, Any]] = []
    checks: list[common.Check] = []
    runs: dict[int, dict[str, Any]] = {}
    for devices in DEVICES:
        of_arrivals = [arrivals(sources, devices, seed) for seed in seeds]
        of_deadlines = [deadlines(sources, devices, seed) for seed in seeds]
        of_owners = [owners(devices, seed) for seed in seeds]
        runs[devices] = {"arrivals": of_arrivals, "deadlines": of_deadlines, "owners": of_owners}
        rows += summary(devices, of_arrivals, of_deadlines, of_owners)
        checks += checked(devices, of_arrivals, of_deadlines, of_owners)
        common.table(rows[-len(POLICIES) :], list(rows[0]))
        relaxed = DUE * sum(d["relaxation"] for d in of_deadlines)
        informed = sum(d["durations known"] for d in of_deadlines)
        print(f"deadlines: {relaxed} of {DUE * draws} in draws that a relaxation allows; "
              f"predictive with all durations known meets {informed}")  # fmt: skip
        print(flush=True)
    figures = {"rows": rows, "runs": runs, "draws": draws}
    return common.finish("arrivals", started, figures, checks, options.json)


def random_jobs(sources: Any, devices: int, seed: int, jobs: int = JOBS) -> tuple[Any, list[Any]]:
    """Durations, and jobs with the moments at which they arrive: random, at a rate that keeps the
    fleet busy."""
    from tunefleet.scheduler.durations import Replay
    from tunefleet.scheduler.mocks import mock_jobs

    rng = random.Random(f"{seed}/{devices}")
    lanes = {
        (f"job{number}", f"job{number}.task{index}"): tuple(rounds)
        for number in range(jobs)
        for index, rounds in enumerate(recorded_rounds.random_job(rng, sources, MOST_LANES))
    }
    per_job_s = max(
        sum(r[0] + r[1] + r[3] for rounds in lanes.values() for r in rounds),
        sum(r[2] for rounds in lanes.values() for r in rounds),
    ) / (jobs * devices)
    at, submitted = 0.0, []
    for event in mock_jobs({name: len(rounds) for name, rounds in lanes.items()}):
        submitted.append(replace(event, at=at))
        at += rng.expovariate(1 / (LOAD * per_job_s))
    return Replay(lanes), submitted


def simulated(policy: str, durations: Any, submitted: Sequence[Any], devices: int) -> Any:
    from tunefleet.scheduler.core import Scheduler
    from tunefleet.scheduler.policies import POLICIES as policies

    return scheduled(Scheduler(policies[policy]()), durations, submitted, devices)


def scheduled(scheduler: Any, durations: Any, submitted: Sequence[Any], devices: int) -> Any:
    """Plans remember what they opened: each simulation gets new ones."""
    from tunefleet.scheduler.mocks import mock_fleet
    from tunefleet.scheduler.plan import FixedPlan
    from tunefleet.scheduler.simulator import simulate

    anew = []
    for event in submitted:
        plan = event.request.plan
        rounds = {task_id: int(plan.rounds_left(task_id)) for task_id in plan.lanes()}
        anew.append(replace(event, request=replace(event.request, plan=FixedPlan(rounds))))
    return simulate(scheduler, [*mock_fleet(devices, devices), *anew], durations)


def arrivals(sources: Any, devices: int, seed: int) -> dict[str, Any]:
    """Makespan over the bound and mean seconds to a result, by policy. The bound is that of lanes
    that look ahead: no schedule is shorter, whatever the policy."""
    from tunefleet.scheduler import bounds

    durations, submitted = random_jobs(sources, devices, seed)
    found = {p: simulated(p, durations, submitted, devices) for p in POLICIES}
    bound = bounds.lower_bound(found["predictive"])
    return {
        "limit": bound.limit.split()[0],
        "makespan": {p: s.makespan_s / bound.seconds for p, s in found.items()},
        "mean_s": {p: mean(bounds.completion_s(s).values()) for p, s in found.items()},
    }


def deadlines(
    sources: Any,
    devices: int,
    seed: int,
    jobs: int = JOBS,
    due_jobs: int = DUE,
    *,
    apart: bool = False,
) -> dict[str, Any]:
    """How many deadlines each policy meets, `predictive` with all durations known, and the best
    schedule that was found; and whether any could meet all, as far as a relaxation says. `apart`:
    each job is of an owner of its own, whose share of the device bounds its hurry."""
    from tunefleet.scheduler.core import Scheduler
    from tunefleet.scheduler.policies import Predictive

    durations, submitted = random_jobs(sources, devices, seed, jobs)
    if apart:
        submitted = [
            replace(e, request=replace(e.request, user=e.request.job_id)) for e in submitted
        ]
    rng = random.Random(f"{seed}/{devices}/deadlines")
    alone = {
        event.request.job_id: least_seconds(durations, [replace(event, at=0.0)], devices)
        for event in submitted
    }
    for index in rng.sample(range(jobs), due_jobs):
        event = submitted[index]
        due = event.at + rng.uniform(*FACTORS) * alone[event.request.job_id]
        submitted[index] = replace(event, request=replace(event.request, deadline=due))
    due_by = {e.request.job_id: e.request.deadline for e in submitted if e.request.deadline}

    def count(simulation: Any) -> int:
        ends = simulation.finished_at
        return sum(ends[job_id] <= due for job_id, due in due_by.items())

    met = {p: count(simulated(p, durations, submitted, devices)) for p in POLICIES}
    knowing = Scheduler(Predictive())
    knowing.estimates = arrivals_witness.KnownEstimates(durations.lanes)  # type: ignore[assignment]
    informed = count(scheduled(knowing, durations, submitted, devices))
    can = max(*met.values(), informed)
    for order in arrivals_witness.orders(due_by):
        if can == due_jobs:
            break
        policy = arrivals_witness.Clairvoyant(order, durations.lanes)
        can = max(can, count(scheduled(Scheduler(policy), durations, submitted, devices)))
    relaxed = possible(durations, submitted, devices)
    return {"met": met, "can": can, "durations known": informed, "relaxation": relaxed}


def possible(durations: Any, submitted: Sequence[Any], devices: int) -> bool:
    """False where no schedule meets all deadlines: jobs that arrive from some moment on and are due
    by some other one take longer than lies between, even if they have the fleet alone."""
    due = [event for event in submitted if event.request.deadline is not None]
    for begin in {event.at for event in due}:
        for end in {event.request.deadline for event in due}:
            inside = [e for e in due if e.at >= begin and e.request.deadline <= end]
            if inside and least_seconds(durations, inside, devices) > end:
                return False
    return True


def least_seconds(durations: Any, submitted: Sequence[Any], devices: int) -> float:
    """The bound of some jobs alone on the fleet."""
    from tunefleet.scheduler import bounds

    return bounds.lower_bound(simulated("predictive", durations, submitted, devices)).seconds


def owners(devices: int, seed: int) -> dict[str, dict[str, float]]:
    """By policy, each owner's share of the device time over its fair one, while all have jobs."""
    from tunefleet.scheduler.durations import THESIS, Spread
    from tunefleet.scheduler.plan import FixedPlan
    from tunefleet.scheduler.values import JobRequest, JobSubmitted

    submitted = [
        JobSubmitted(0.0, JobRequest(
            f"{owner}{number}",
            FixedPlan({f"{owner}{number}.task{lane}": OWNED_ROUNDS for lane in range(OWNED_LANES)}),
            user=owner, priority=priority,
        ))
        for owner, (priority, jobs) in OWNERS.items() for number in range(jobs)
    ]  # fmt: skip
    weights = {owner: 2.0**priority for owner, (priority, _) in OWNERS.items()}
    durations = Spread(THESIS.seconds, 0.5, 0.5, seed)
    found = {}
    for policy in POLICIES:
        simulation = simulated(policy, durations, submitted, devices)
        owner_of = {e.request.job_id: e.request.user for e in submitted}
        until = min(
            max(end for job, end in simulation.finished_at.items() if owner_of[job] == owner)
            for owner in OWNERS
        )
        used = dict.fromkeys(OWNERS, 0.0)
        for span in simulation.spans:
            if span.resource_id.startswith("device"):
                used[owner_of[span.key.job_id]] += max(0.0, min(span.end, until) - span.start)
        whole, fair = sum(used.values()), sum(weights.values())
        found[policy] = {o: used[o] / whole / (weights[o] / fair) for o in OWNERS}
    return found


def mean(values: Any) -> float:
    listed = list(values)
    return float(sum(listed) / len(listed))


def summary(
    devices: int,
    of_arrivals: Sequence[Any],
    of_deadlines: Sequence[Any],
    of_owners: Sequence[Any],
) -> list[dict[str, Any]]:
    from tunefleet.core.statistics import median

    can = sum(d["can"] for d in of_deadlines)
    rows = []
    for policy in POLICIES:
        makespans = [a["makespan"][policy] for a in of_arrivals]
        shares = [of[policy] for of in of_owners]
        rows.append({
            "devices": devices,
            "policy": policy,
            "makespan / bound": median(makespans),
            "worst": max(makespans),
            "mean time / best other": median([to_others(a, policy) for a in of_arrivals]),
            "worst ": max(to_others(a, policy) for a in of_arrivals),
            "deadlines met": f"{sum(d['met'][policy] for d in of_deadlines)} of {can}",
            "least share / fair": min(min(of.values()) for of in shares),
            "most": max(max(of.values()) for of in shares),
        })  # fmt: skip
    return rows


def to_others(run: Mapping[str, Any], policy: str) -> float:
    """A policy's mean time to a result over that of the best other one."""
    times: dict[str, float] = run["mean_s"]
    return times[policy] / min(seconds for name, seconds in times.items() if name != policy)


def checked(
    devices: int,
    of_arrivals: Sequence[Any],
    of_deadlines: Sequence[Any],
    of_owners: Sequence[Any],
) -> list[common.Check]:
    from tunefleet.core.statistics import median

    name = f"predictive, {devices} device{'s' if devices > 1 else ''}"
    makespan = median([a["makespan"]["predictive"] for a in of_arrivals])
    time_to_result = median([to_others(a, "predictive") for a in of_arrivals])
    can = sum(d["can"] for d in of_deadlines)
    missed = sum(d["can"] - d["met"]["predictive"] for d in of_deadlines)
    unfair = max(abs(s - 1) for of in of_owners for s in of["predictive"].values())
    return [
        common.at_most(f"{name}: makespan over the bound, median", makespan, 1.10, "condition"),
        common.at_most(f"{name}: mean time to result over the best other policy, median",
                       time_to_result, 1.00, "condition"),
        common.at_most(f"{name}: deadlines missed of {can} that some schedule met, draw by draw",
                       missed, 0, "condition"),
        common.at_most(f"{name}: farthest from a fair share of device time", unfair, 0.10,
                       "condition"),
    ]  # fmt: skip


if __name__ == "__main__":
    made = common.parser("Jobs that arrive at a running scheduler.")
    made.add_argument("--data", type=Path, default=common.DATA)
    made.add_argument("--draws", type=int, default=20)
    made.add_argument("--real", action="store_true", help="jobs on this machine's processor")
    made.add_argument("--one", action="store_true", help="one deadline among 20 other jobs")
    made.add_argument("--first-seed", type=int, default=0, help="of the draws")
    common.run(main, made)
