"""One deadline among 20 other jobs, over a live service and in the simulator.

A service whose stages take known seconds (mock_service.py) gets 20 jobs at random moments, of one
owner or each of its own, and among them one with a deadline, somewhere between tighter than any
schedule and loose. All jobs are then simulated with the same seconds and arrivals, under the
policy of the service and under one that knows everything and puts that job first. What either
delivers in time, the service has to deliver in time too.

The jobs of later draws are those of the first in another order, so that the service has earlier
runs of them: what it says of the queue at each submission is compared with when that job ended.

    .venv/bin/python benchmarks/service_deadlines.py --json out.json
    .venv/bin/python benchmarks/service_deadlines.py --simulated
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import common
import mock_service
from service_load import ServiceProcess, token_of
from simulated_service import SEARCH, SentJob, SimulatedService
from tunefleet.client import AsyncClient
from tunefleet.core.events import JobEnded
from tunefleet.core.job import Job, JobState
from tunefleet.store import SqlStore, open_store

OTHERS = 20
#: Draws with `--simulated`, of each kind of service.
SIMULATED = 20
#: Mean seconds between two arrivals, on one device.
_BETWEEN_S = 1.5
#: A deadline is so many times the seconds of its job alone away: at first, and at last.
_LEAST, _MOST = 0.8, 8.0
#: Rounds beyond the first one of each task.
_ROUNDS = (2, 5)
#: Seconds for which the jobs of a draw may last.
_HANGS_S = 600.0


def main(options: argparse.Namespace) -> int:
    if options.serve:
        return mock_service.serve(Path(options.serve), options.devices, options.seed, options.port)
    started = time.time()
    if options.simulated:
        figures, found = simulated(2 if options.quick else SIMULATED, options.seed)
        return common.finish("service_deadlines", started, figures, found, options.json)
    draws, others = (2, 3) if options.quick else (options.draws, OTHERS)
    rows, queued = asyncio.run(all_homes(draws, others, options.devices, options.seed))
    common.table(rows, list(rows[0]))
    queue = queue_figures(queued)
    common.table([queue], list(queue))
    figures = {"draws": rows, "queue": queue, "queued": queued, "load": os.getloadavg()[1]}
    return common.finish("service_deadlines", started, figures, checks(figures), options.json)


async def all_homes(
    draws: int, others: int, devices: int, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A service of one owner and one of many, at the same time."""
    found = await asyncio.gather(
        *(of_home(draws, others, devices, apart, seed) for apart in (False, True))
    )
    return [row for rows, _ in found for row in rows], [each for _, of in found for each in of]


def simulated(draws: int, seed: int) -> tuple[dict[str, Any], list[common.Check]]:
    """Such draws in the simulator: on one device and on two, with earlier runs and without."""
    durations = mock_service.KnownDurations(seed)
    rows = []
    for apart, devices, prepared in product((False, True), (1, 2), (False, True)):
        can = met = 0
        for number in range(draws):
            draw = random.Random(number)
            jobs = [sent_job(draw, durations, n, apart) for n in range(OTHERS + 1)]
            service = SimulatedService(jobs, durations, devices, prepared=prepared)
            order = draw.sample([job.network for job in jobs], len(jobs))
            urgent = order[draw.randrange(len(order) // 2, len(order))]
            at, arrived = 0.0, {}
            for network in order:
                arrived[network] = at
                at += draw.expovariate(devices / _BETWEEN_S)
            alone_s = service.ends({urgent: 0.0}, {})[urgent]
            due = arrived[urgent] + _LEAST * (_MOST / _LEAST) ** draw.random() * alone_s
            is_met = service.ends(arrived, {urgent: due})[urgent] <= due
            is_met = is_met and service.is_whole(urgent)
            first = service.ends(arrived, {}, first=urgent)[urgent]
            can += is_met or first <= due
            met += is_met
        owners = OTHERS + 1 if apart else 1
        rows.append(
            {"owners": owners, "devices": devices, "earlier runs": prepared, "can": can, "met": met}
        )
        common.table(rows[-1:], list(rows[0]))
    found = []
    for owners in (1, OTHERS + 1):
        of = [row for row in rows if row["owners"] == owners]
        can = sum(row["can"] for row in of)
        missed = can - sum(row["met"] for row in of)
        name = f"{owners} owners: missed in the simulator by `predictive` of {can}"
        found.append(common.at_most(name, missed, 0, "condition"))
    return {"rows": rows}, found


# Over a service


async def of_home(
    draws: int, others: int, devices: int, apart: bool, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The draws of one service, one after the other, and what it said of its queue in them."""
    durations = mock_service.KnownDurations(seed)
    draw = random.Random(f"{seed}/{devices}/{apart}")
    jobs = [sent_job(draw, durations, number, apart) for number in range(others + 1)]
    ratio = _MOST / _LEAST
    factors = [_LEAST * ratio ** ((n + draw.random()) / draws) for n in range(draws)]
    draw.shuffle(factors)
    rows, queued = [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with closing(open_store(home)) as store:
            tokens = [token_of(store, f"user{n}") for n in range(len(jobs) if apart else 1)]
            options = ("--devices", str(devices), "--seed", str(seed))
            service = await asyncio.to_thread(ServiceProcess, home, __file__, *options)
            clients = [AsyncClient(service.url, token) for token in tokens]
            try:
                for number, factor in enumerate(factors):
                    run = Draw(jobs, durations, devices, prepared=number > 0)
                    found = await run.live(draw, clients, store, factor)
                    load = os.getloadavg()[0]
                    rows.append({"owners": len(tokens), "devices": devices, **found, "load": load})
                    queued += run.queued
                    print(rows[-1], flush=True)
            finally:
                for client in clients:
                    await client.close()
                service.kill()
    return rows, queued


def sent_job(
    draw: random.Random, durations: mock_service.KnownDurations, number: int, apart: bool
) -> SentJob:
    size, rounds = 24 + 8 * number, draw.randint(*_ROUNDS)
    network = f"tiny_cnn-size{size}"
    trials = len(durations.tasks(network)) * SEARCH.first_batch + rounds * SEARCH.batch
    return SentJob(f"zoo:tiny_cnn?size={size}", network, trials, number if apart else 0)


class Draw:
    """The jobs of a service that come once, one of them with a deadline. `prepared`: they were
    there before, so that they are not imported again."""

    def __init__(
        self,
        jobs: Sequence[SentJob],
        durations: mock_service.KnownDurations,
        devices: int,
        *,
        prepared: bool,
    ) -> None:
        self._jobs = {job.network: job for job in jobs}
        self._devices = devices
        self._prepared = prepared
        self._simulated = SimulatedService(jobs, durations, devices, prepared=prepared)
        #: What was said of the queue at each submission, and when that job ended.
        self.queued: list[dict[str, Any]] = []

    async def live(
        self, draw: random.Random, clients: Sequence[AsyncClient], store: SqlStore, factor: float
    ) -> dict[str, Any]:
        """Send all jobs, wait for their ends, and compare with the simulator."""
        order = draw.sample(list(self._jobs), len(self._jobs))
        urgent = order[draw.randrange(len(order) // 2, len(order))]
        alone_s = self._simulated.ends({urgent: 0.0}, {})[urgent]
        views: dict[str, dict[str, Any]] = {}
        deadline = 0.0
        for network in order:
            job, asked = self._jobs[network], {}
            if network == urgent:
                deadline = asked["deadline"] = time.time() + factor * alone_s
            views[network] = await clients[job.owner].submit(
                job.spec,
                budget={"trials": job.trials},
                threads=1,
                transfer_learning=False,
                **asked,
            )
            await asyncio.sleep(draw.expovariate(self._devices / _BETWEEN_S))
        until = time.monotonic() + _HANGS_S
        while store.jobs.page(state=JobState.RUNNING, limit=1):
            if time.monotonic() > until:
                raise RuntimeError("the jobs do not end")
            await asyncio.sleep(0.5)
        jobs = {network: store.jobs.get(view["id"]) for network, view in views.items()}
        ends = {network: ended_at(store, job) for network, job in jobs.items()}
        begins = {network: begun_at(store, job) for network, job in jobs.items()}
        self._keep_queue(views, jobs, begins, ends)
        arrived = {network: job.created_at for network, job in jobs.items()}
        due = {urgent: deadline}
        sent_at = arrived[urgent]
        same = self._simulated.ends(arrived, due)[urgent]
        is_whole = self._simulated.is_whole(urgent)
        first = self._simulated.ends(arrived, {}, first=urgent)[urgent]
        trials = store.records.trial_count(jobs[urgent].job_id)
        return {
            "factor": factor,
            "due_s": deadline - sent_at,
            "alone_s": alone_s,
            "first_s": first - sent_at,
            "simulated_s": same - sent_at,
            "live_s": ends[urgent] - sent_at,
            "can": first <= deadline or (is_whole and same <= deadline),
            "simulated": is_whole and same <= deadline,
            "met": ends[urgent] <= deadline and trials == self._jobs[urgent].trials,
            "delivered": ends[urgent] <= deadline,
        }

    def _keep_queue(
        self,
        views: Mapping[str, dict[str, Any]],
        jobs: Mapping[str, Job],
        begins: Mapping[str, float],
        ends: Mapping[str, float],
    ) -> None:
        for network, view in views.items():
            queue, at = view["queue"], jobs[network].created_at
            self.queued.append(
                {
                    "owners": len({job.owner for job in self._jobs.values()}),
                    "devices": self._devices,
                    "prepared": self._prepared,
                    "urgent": jobs[network].spec.terms.deadline is not None,
                    "jobs": queue["jobs"],
                    "starts_s": queue["starts_at"] - at,
                    "began_s": begins[network] - at,
                    "ends_s": None if queue["ends_at"] is None else queue["ends_at"] - at,
                    "took_s": ends[network] - at,
                }
            )


def begun_at(store: SqlStore, job: Job) -> float:
    """When the first step or stage of a job began, in seconds since the epoch."""
    owners = (job.spec.preparation.id, job.job_id)
    began = [run.started_at for owner in owners for run in store.work.steps(owner)]
    began += [run.started_at for run in store.work.stages(job.job_id)]
    return min(at for at in began if at >= job.created_at)


def ended_at(store: SqlStore, job: Job) -> float:
    """Seconds since the epoch."""
    ended, after = [], 0
    while page := store.events.page(after, [job.job_id], kinds=[JobEnded]):
        after = page[-1].seq
        ended += [kept.at for kept in page]
    if len(ended) != 1:
        raise RuntimeError(f"{job.spec.network.name} ended {len(ended)} times")
    return ended[0]


# Figures


def queue_figures(queued: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far what was said of jobs with earlier runs was from what happened: of the end over the
    seconds until then, of the beginning in seconds."""
    asked = [each for each in queued if each["prepared"]]
    said = [each for each in asked if each["ends_s"] is not None]
    ratios = [each["ends_s"] / each["took_s"] for each in said]
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    starts = sorted(abs(each["starts_s"] - each["began_s"]) for each in asked)
    return {
        "submissions": len(asked),
        "said": len(said),
        "median_error": statistics.median(errors) if errors else None,
        "p90_error": errors[int(0.9 * len(errors))] if errors else None,
        "median_ratio": statistics.median(ratios) if ratios else None,
        "median_start_error_s": statistics.median(starts),
        "p90_start_error_s": starts[int(0.9 * len(starts))],
    }


def checks(figures: Mapping[str, Any]) -> list[common.Check]:
    made = []
    for is_apart in (False, True):
        rows = [row for row in figures["draws"] if (row["owners"] > 1) == is_apart]
        can = [row for row in rows if row["can"]]
        missed = sum(not row["met"] for row in can)
        owners = "an owner of its own" if is_apart else "one owner"
        made.append(
            common.at_most(
                f"{len(rows)} deadlines among others, each job of {owners}: missed by the service "
                f"of {len(can)} that the simulator meets",
                missed,
                0,
                "condition",
            )
        )
    return made


if __name__ == "__main__":
    made = common.parser("One deadline among 20 other jobs, over a live service.")
    made.add_argument("--draws", type=int, default=3, help="of each of two services")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--simulated", action="store_true", help="in the simulator alone")
    made.add_argument("--serve", metavar="HOME", help="be the service of a home")
    made.add_argument("--devices", type=int, default=1, help="of each service")
    made.add_argument("--port", type=int, default=0, help="with --serve")
    common.run(main, made)
