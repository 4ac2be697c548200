"""Real jobs that arrive at a running server, and the same arrivals in the simulator, for
`arrivals.py`.

A `tunefleet serve` of an empty home does small networks that come at random moments. Afterwards
each stage and step has its recorded seconds in the simulator, with the resources and the policy of
the server: what differs is what passes between stages.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

#: The job whose rounds have been simulated is followed by its delivery.
BEFORE, AFTER = " before", " after"
NETWORKS = (
    "zoo:tiny_cnn?size=32", "zoo:bert_tiny?size=16", "zoo:tiny_cnn?size=48", "zoo:tiny_cnn?size=24",
    "zoo:bert_tiny?size=32", "zoo:tiny_cnn?size=64", "zoo:tiny_cnn?size=40", "zoo:tiny_cnn?size=16",
)  # fmt: skip
TRIALS, BATCH = 24, 8
#: Mean seconds between two arrivals: less than a job takes, so that they meet.
BETWEEN_S = 12.0
#: Seconds for a server to begin, and for all jobs to end.
_BEGINS_S, _ENDS_S = 120.0, 1800.0


@dataclass(frozen=True)
class RealJob:
    """What was recorded of a job: when it was entered and ended, its steps before and after the
    search by kind and their seconds, and its stages in the order of their start. `candidates`: how
    many each round selected, by task and iteration."""

    job_id: str
    entered_at: float
    ended_at: float
    before: Mapping[Any, float]
    after: Mapping[Any, float]
    stages: Sequence[Any]
    candidates: Mapping[tuple[str, int], int]
    host_kind: str
    device_kind: str


class RecordedPlan:
    """Implements scheduler.plan.Plan: the rounds of a job in the order of their start."""

    def __init__(self, stages: Sequence[Any], candidates: Mapping[tuple[str, int], int]) -> None:
        from tunefleet.core.stage import StageKind

        self._candidates = candidates
        #: (task, iteration) -> the kinds that ran.
        self._rounds: dict[tuple[str, int], set[Any]] = {}
        for span in stages:
            key = span.key
            self._rounds.setdefault((key.task_id, key.iteration), set()).add(key.kind)
        # What a first model is made of comes before any round.
        first = [name for name, kinds in self._rounds.items() if StageKind.SELECT not in kinds]
        self._first = first[0] if first else None
        self._order = [name for name in self._rounds if name not in first]
        self._busy: set[str] = set()
        self.tasks = {task_id for task_id, _ in self._rounds}

    def lanes(self) -> Mapping[str, int]:
        first: dict[str, int] = {}
        for task_id, iteration in [*self._order, *([self._first] if self._first else [])]:
            first.setdefault(task_id, max(0, iteration))
        return first

    def unfinished(self) -> Sequence[tuple[str, int, frozenset[Any]]]:
        from tunefleet.core.stage import STAGE_ORDER

        if self._first is None:
            return ()
        self._busy.add(self._first[0])
        return [(*self._first, frozenset(STAGE_ORDER[:-1]))]

    def next_lane(self, now: float) -> str | None:
        if self._first is not None:
            return None
        for place, (task_id, _) in enumerate(self._order):
            if task_id not in self._busy:
                del self._order[place]
                self._busy.add(task_id)
                return task_id
        return None

    def absorb(self, key: Any, result: object, seconds: float) -> bool:
        if self._first == (key.task_id, key.iteration):
            self._first = None
        return len(self._rounds[key.task_id, key.iteration]) > 1

    def closed(self, task_id: str) -> None:
        self._busy.discard(task_id)

    def failed(self, task_id: str, reason: str) -> None:
        raise AssertionError(reason)

    def ended(self, now: float) -> str:
        return "" if self._order or self._first else "every recorded round ran"

    def rounds_left(self, task_id: str) -> float:
        """As `TuningPlan` estimates it: trials that are left, over all tasks."""
        left = sum(self._candidates[name] for name in self._order)
        return left / BATCH / len(self.tasks)


def compared(options: Any) -> tuple[dict[str, Any], list[common.Check]]:
    """The figures, and what is checked of them."""
    networks = NETWORKS[:1] + NETWORKS[2:4] if options.quick else NETWORKS
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        serve(home, networks, options.first_seed)
        jobs = recorded(home)
        resources, in_flight = server_resources(home, jobs[0])
    ends = simulated(jobs, resources, in_flight)
    begin = jobs[0].entered_at
    rows = [
        {
            "network": network,
            "arrives_s": job.entered_at - begin,
            "real_s": job.ended_at - job.entered_at,
            "simulated_s": ends[job.job_id] - job.entered_at,
            "of stages_s": sum(span.seconds for span in job.stages),
            "of steps_s": sum([*job.before.values(), *job.after.values()]),
        }
        for network, job in zip(networks, jobs, strict=True)
    ]
    common.table(rows, list(rows[0]))
    real = {
        "makespan": max(job.ended_at for job in jobs) - begin,
        "mean": sum(row["real_s"] for row in rows) / len(rows),
    }
    made = {
        "makespan": max(ends.values()) - begin,
        "mean": sum(row["simulated_s"] for row in rows) / len(rows),
    }
    names = {"makespan": "makespan", "mean": "mean time to a result"}
    checks = [
        common.at_most(f"{len(jobs)} real jobs on one device: {text}, {real[name]:.1f} s, from the "
                       f"simulated {made[name]:.1f} s", abs(made[name] / real[name] - 1), 0.05,
                       "condition")
        for name, text in names.items()
    ]  # fmt: skip
    load = os.getloadavg()[1]
    return {"real": rows, "real_s": real, "simulated_s": made, "load": load}, checks


def serve(home: Path, networks: Sequence[str], seed: int) -> None:
    """Let a server do networks that come at random moments; returns when all jobs have ended."""
    from tunefleet.core.home import Home
    from tunefleet.core.job import JobState
    from tunefleet.fleet.server_socket import ServerRequest, ask
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.runs.tuning import tune
    from tunefleet.store import open_store

    home.mkdir()
    draw = random.Random(f"{seed}/real")
    with ExitStack() as stack:
        log = stack.enter_context(home.with_name("serve.txt").open("wb"))
        server = subprocess.Popen(
            [sys.executable, "-m", "tunefleet", "serve", "--threads", "1", "--home", str(home)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        stack.callback(server.wait)
        stack.callback(server.terminate)
        begins_by = time.monotonic() + _BEGINS_S
        while ask(Home(home), ServerRequest("hello")) is None:
            if server.poll() is not None or time.monotonic() > begins_by:
                raise SystemExit(home.with_name("serve.txt").read_text(encoding="utf-8"))
            time.sleep(0.2)
        for network in networks:
            context = BenchmarkContext(home=home, threads=1)
            [left] = tune([network], trials=TRIALS, batch_size=BATCH, context=context, detach=True)
            if left.error is not None:
                raise left.error
            time.sleep(0 if network is networks[-1] else draw.expovariate(1 / BETWEEN_S))
        ends_by = time.monotonic() + _ENDS_S
        store = stack.enter_context(closing(open_store(home)))
        while time.monotonic() < ends_by and store.jobs.page(state=JobState.RUNNING):
            time.sleep(1)


def recorded(home: Path) -> list[RealJob]:
    """What the store has of all jobs, in the order in which they were entered."""
    from tunefleet.core.events import JobEnded
    from tunefleet.core.stage import SelectResult, StageKind
    from tunefleet.scheduler.values import at_home
    from tunefleet.store import open_store

    with closing(open_store(home)) as store:
        spans = store.work.stages_between(0.0, 1e12)
        jobs = []
        for job in sorted(store.jobs.page(), key=lambda job: job.created_at):
            ended_at, after = 0.0, 0
            while page := store.events.page(after, [job.job_id]):
                after = page[-1].seq
                ended_at = max([ended_at, *(e.at for e in page if isinstance(e.event, JobEnded))])
            if not ended_at or str(job.state) != "succeeded":
                raise SystemExit(f"{job.spec.network.name}: {job.state}")
            stages = [span for span in spans if span.key.job_id == job.job_id]
            owners = (job.spec.preparation.id, job.job_id)
            steps = sorted(
                (run.span for owner in owners for run in store.work.steps(owner)),
                key=lambda span: span.started_at,
            )
            candidates = {
                (run.key.task_id, run.key.iteration): len(run.result.candidates)
                for run in store.work.stages(job.job_id) if isinstance(run.result, SelectResult)
            }  # fmt: skip
            searched_at = stages[0].started_at
            host = job.spec.toolchain.host
            chosen = next(span for span in stages if span.key.kind is StageKind.SELECT)
            jobs.append(RealJob(
                job.job_id, job.created_at, ended_at,
                {s.key.kind: s.seconds for s in steps if s.started_at < searched_at},
                {s.key.kind: s.seconds for s in steps if s.started_at >= searched_at},
                stages, candidates, at_home(host) if chosen.resource_id == "home" else host,
                job.spec.measured_on,
            ))  # fmt: skip
    return jobs


def server_resources(home: Path, job: RealJob) -> tuple[list[Any], dict[str, int]]:
    """The resources of a server of one device, and how many rounds it opens, as in
    `LocalFleet.shell`."""
    from tunefleet.core.device import THIS_MACHINE
    from tunefleet.fleet.leases import device_units, machine_units
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.scheduler.values import Resource, Role, at_home

    layout = BenchmarkContext(home=home, threads=1).layout
    host = job.host_kind.removeprefix(at_home(""))
    units = machine_units(layout.host_units)
    resources = [
        Resource("home", Role.HOST, at_home(host), units),
        Resource("host", Role.HOST, host, units),
        Resource("device", Role.DEVICE, job.device_kind,
                 device_units("device", THIS_MACHINE, layout), also=at_home(job.device_kind)),
    ]  # fmt: skip
    return resources, {job.device_kind: 1 if layout.time_shared else 3}


def simulated(
    jobs: Sequence[RealJob], resources: Sequence[Any], in_flight: Mapping[str, int]
) -> dict[str, float]:
    """When each job ends in the simulator, by id."""
    from tunefleet.core.stage import STAGE_ORDER
    from tunefleet.scheduler.core import Scheduler
    from tunefleet.scheduler.plan import StepPlan
    from tunefleet.scheduler.policies import Predictive
    from tunefleet.scheduler.simulator import simulate
    from tunefleet.scheduler.values import (
        FinishJob,
        JobRequest,
        JobSubmitted,
        ResourceJoined,
        at_home,
    )

    seconds: dict[tuple[str, str, int, Any], float] = {}
    following: dict[str, Any] = {}
    arriving = []
    for job in jobs:
        host = job.host_kind.removeprefix(at_home(""))
        parts = []
        for suffix, steps in ((BEFORE, job.before), (AFTER, job.after)):
            name = job.job_id + suffix
            seconds |= {(name, "", 0, kind): took for kind, took in steps.items()}
            parts.append(JobRequest(
                name, StepPlan(), order=tuple(steps), host_kind=at_home(host),
                device_kind=job.device_kind, priority=8, lookahead=False, needs_home=True,
            ))  # fmt: skip
        for span in job.stages:
            key = span.key
            seconds[key.job_id, key.task_id, key.iteration, key.kind] = span.seconds
        before, after = parts
        search = JobRequest(
            job.job_id, RecordedPlan(job.stages, job.candidates), order=STAGE_ORDER,
            host_kind=job.host_kind, device_kind=job.device_kind, user="owner",
        )  # fmt: skip
        following |= {before.job_id: search, search.job_id: after}
        arriving.append(JobSubmitted(job.entered_at, before))

    class Chained(Scheduler):
        """Submits what follows on the end of a job, as a job's pipeline does."""

        def handle(self, event: Any) -> list[Any]:
            out = super().handle(event)
            for ended in [i for i in out if isinstance(i, FinishJob)]:
                request = following.get(ended.job_id)
                if request is not None:
                    out += self.handle(JobSubmitted(event.at, request))
            return out

    joined = [ResourceJoined(jobs[0].entered_at, resource) for resource in resources]
    found = simulate(
        Chained(Predictive(), in_flight),
        [*joined, *arriving],
        lambda key: seconds[key.job_id, key.task_id, key.iteration, key.kind],
    )
    return {job.job_id: found.finished_at[job.job_id + AFTER] for job in jobs}
