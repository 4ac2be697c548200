"""A service under load: submissions, watchers, and a restart in the middle.

Users submit jobs by HTTP while others watch them; devices are mock ones, which take a job up,
report what happens to it and deliver it. In the middle the service is killed (SIGKILL) and begun
again. What is judged: no request that fails, the 99th percentile of the API's answers, what each
watcher saw against what the store kept (nothing missing, nothing twice), and the memory of the
service before and after the events of a day.

    .venv/bin/python benchmarks/service_load.py --json out.json
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx

import common
from tunefleet.client import AsyncClient
from tunefleet.core.events import JobEnded, JobOpened, Note, PhaseStarted
from tunefleet.core.job import JobState
from tunefleet.service.tokens import new_token
from tunefleet.store import SqlStore, User, each_job, open_store

#: Events of a mock job, and seconds between two of them.
_EVENTS, _EVENT_S = 40, 0.05
#: Events of a day: of three jobs at once, one in 2.6 s.
_DAY = 100_000
_MOST_MS, _MOST_GROWTH_MB = 200.0, 50.0


def main(options: argparse.Namespace) -> int:
    if options.serve:
        return serve(Path(options.serve), options.port)
    started = time.time()
    users, submissions, watchers, seconds, day = 50, 500, 200, 60.0, _DAY
    if options.quick:
        users, submissions, watchers, seconds, day = 5, 20, 10, 2.0, 5_000
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with closing(open_store(home)) as store:
            tokens = [token_of(store, f"user{n}") for n in range(users)]
        figures = asyncio.run(loaded(home, tokens, submissions, watchers, seconds))
        figures |= memory(home, day)
    common.table([figures], list(figures))
    return common.finish("service_load", started, figures, checks(figures), options.json)


def token_of(store: SqlStore, name: str) -> str:
    store.accounts.put_user(User(name, created_at=time.time()))
    text, token = new_token(name, time.time())
    store.accounts.put_token(token)
    return text


# The service, in a process of its own


def serve(home: Path, port: int) -> int:
    from tunefleet.service.app import ServiceSettings
    from tunefleet.service.running import HttpService, Listening

    ended = threading.Event()
    with HttpService(home, Listening(port=port), ServiceSettings(), lambda ids: None) as service:
        print(f"answering at {service.url}", flush=True)
        threading.Thread(target=mock_devices, args=(home, ended), daemon=True).start()
        sys.stdin.read()
        ended.set()
    return 0


def mock_devices(home: Path, ended: threading.Event) -> None:
    """Start jobs, append their events, and finish them: eight at once."""
    with closing(open_store(home)) as store:
        told: dict[str, int] = defaultdict(int)
        while not ended.wait(_EVENT_S):
            open_jobs = list(each_job(store.jobs, state=JobState.RUNNING))[-8:]
            for job in open_jobs:
                known = told[job.job_id]
                if not known:
                    page = store.events.page(0, [job.job_id])
                    known = told[job.job_id] = len(page)
                if known < _EVENTS:
                    first = JobOpened(job.job_id, False, job.spec.budget, 0.0)
                    event: Any = first if not known else Note(f"mock event {known}")
                    store.events.append(job.job_id, time.time(), [event])
                    told[job.job_id] += 1
                else:
                    store.jobs.finish(job.job_id, JobState.SUCCEEDED, {"stopped": "a mock device"})
                    store.events.append(job.job_id, time.time(), [JobEnded()])


class ServiceProcess:
    """The service; begun again at the same port after it was killed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = 0
        self.begin()

    def begin(self) -> None:
        command = [sys.executable, __file__, "--serve", str(self._home), "--port", str(self.port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        [port] = re.findall(r":(\d+)$", line.strip())
        self.port = int(port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        [kib] = re.findall(r"VmRSS:\s+(\d+) kB", status)
        return int(kib) / 1024


# Its users


class Timed:
    """The seconds of each answer of a client but those that wait on purpose."""

    def __init__(self) -> None:
        self._answers: list[tuple[float, float]] = []
        self._gone = (float("inf"), float("inf"))
        self.statuses: list[int] = []

    def hooks(self) -> dict[str, Any]:
        return {"request": [self._begin], "response": [self._end]}

    async def _begin(self, request: httpx.Request) -> None:
        request.extensions["began"] = time.perf_counter()

    async def _end(self, response: httpx.Response) -> None:
        began = response.request.extensions["began"]
        if "prefer" not in response.request.headers:
            self._answers.append((began, time.perf_counter() - began))
        self.statuses.append(response.status_code)

    def leave_out(self, start: float, end: float) -> None:
        """Of the API's speed, what was asked while there was none."""
        self._gone = (start, end)

    @property
    def seconds(self) -> list[float]:
        """Of each answer, in seconds."""
        start, end = self._gone
        return [s for began, s in self._answers if began + s < start or began > end]


async def loaded(
    home: Path, tokens: list[str], submissions: int, watchers: int, seconds: float
) -> dict[str, Any]:
    """Submissions at random moments of so many seconds; each watcher takes the next job."""
    service, timed = ServiceProcess(home), Timed()
    clients = [AsyncClient(service.url, token, event_hooks=timed.hooks()) for token in tokens]
    try:
        jobs: list[tuple[int, str]] = []
        submitted = asyncio.Event()

        async def submit(user: int) -> None:
            for n in range(submissions // len(tokens)):
                await asyncio.sleep(draw.uniform(0, 2 * pause_s))
                view = await clients[user].submit(
                    "zoo:tiny_cnn", budget={"trials": 100 + n}, threads=1
                )
                jobs.append((user, view["id"]))
                await clients[user].jobs(limit=20)

        draw, pause_s = random.Random(1), seconds * len(tokens) / submissions
        seen: dict[int, list[tuple[str, int]]] = defaultdict(list)
        watched: dict[int, tuple[int, str]] = {}

        async def watch(number: int) -> None:
            while len(jobs) <= number % submissions and not submitted.is_set():
                await asyncio.sleep(0.1)
            user, job_id = watched[number] = jobs[number % len(jobs)]
            async for event in clients[user].events(job_id):
                seen[number].append((job_id, event["seq"]))

        watching = [asyncio.create_task(watch(number)) for number in range(watchers)]
        began = time.perf_counter()
        submitting = asyncio.gather(*(submit(user) for user in range(len(tokens))))
        await asyncio.sleep(seconds / 2)
        service.kill()
        killed_at = time.perf_counter()
        await asyncio.to_thread(service.begin)
        timed.leave_out(killed_at, time.perf_counter() + 1.0)
        await submitting
        submitted_s = time.perf_counter() - began
        submitted.set()
        await asyncio.gather(*watching)
    finally:
        for client in clients:
            await client.close()
        service.kill()
    faults = 0
    with closing(open_store(home)) as store:
        for number in range(watchers):
            _, job_id = watched[number]
            kept = [(job_id, each.seq) for each in store.events.page(0, [job_id])]
            faults += kept != seen[number]
        entered = len(list(each_job(store.jobs)))
    ordered = sorted(timed.seconds)
    return {
        "users": len(tokens),
        "jobs": entered,
        "asked_for": submissions // len(tokens) * len(tokens),
        "watchers": watchers,
        "watchers_wrong": faults,
        "failed_answers": sum(status >= 400 for status in timed.statuses),
        "answers": len(ordered),
        "submissions_s": submitted_s,
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(0.99 * len(ordered))] * 1e3,
    }


def memory(home: Path, events: int) -> dict[str, Any]:
    """What the service has before and after it handed out the events of a day to one watcher."""
    with closing(open_store(home)) as store:
        token = token_of(store, "watcher")
    service = ServiceProcess(home)
    try:
        return asyncio.run(watched(home, service, token, events))
    finally:
        service.kill()


async def watched(home: Path, service: ServiceProcess, token: str, events: int) -> dict[str, Any]:
    client = AsyncClient(service.url, token)
    view = await client.submit("zoo:tiny_cnn", budget={"trials": 7}, threads=1)
    await client.pause(view["id"])
    await asyncio.sleep(1.0)

    def happen() -> None:
        with closing(open_store(home)) as store:
            for first in range(0, events, 1000):
                told = [PhaseStarted(f"event {first + n}") for n in range(1000)]
                store.events.append(view["id"], time.time(), told)

    count, before, at_tenth = 0, service.resident_mb(), 0.0
    happening = asyncio.create_task(asyncio.to_thread(happen))
    async for _ in client.events(view["id"]):
        count += 1
        if count == events // 10:
            at_tenth = service.resident_mb()
        if count >= events:
            break
    await happening
    await client.close()
    return {"mb_before": before, "mb_at_a_tenth": at_tenth, "mb_after": service.resident_mb()}


def checks(figures: dict[str, Any]) -> list[common.Check]:
    grown = figures["mb_after"] - figures["mb_at_a_tenth"]
    lost = abs(figures["jobs"] - figures["asked_for"])
    return [
        common.at_most("answers that failed", figures["failed_answers"], 0, "condition"),
        common.at_most("jobs that are missing or twice", lost, 0, "condition", any_size=True),
        common.at_most(
            "watchers that missed an event, or saw one twice",
            figures["watchers_wrong"],
            0,
            "condition",
            any_size=True,
        ),
        common.at_most("99th percentile of the API, ms", figures["p99_ms"], _MOST_MS, "condition"),
        common.at_most(
            "growth of memory over nine tenths of a day's events, MB",
            grown,
            _MOST_GROWTH_MB,
            "condition",
        ),
    ]


if __name__ == "__main__":
    made = common.parser("A service under load.")
    made.add_argument("--serve", metavar="HOME", help="be the service of a home")
    made.add_argument("--port", type=int, default=0)
    common.run(main, made)
