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
import json
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx

import common
from tunefleet.client import AsyncClient
from tunefleet.core.events import Event, JobEnded, JobOpened, Note, PhaseStarted
from tunefleet.core.job import JobState
from tunefleet.service.tokens import new_token
from tunefleet.store import SqlStore, User, each_job, open_store

#: Events of a mock job, seconds between two of them, and jobs at once.
_EVENTS, _EVENT_S, _AT_ONCE = 40, 0.05, 8
#: Events of a day: of three jobs at once, one in 2.6 s.
_DAY = 100_000
_MOST_MS, _MOST_GROWTH_MB = 200.0, 50.0


def main(options: argparse.Namespace) -> int:
    if options.serve:
        return serve(Path(options.serve), options.port)
    if options.watch:
        return asyncio.run(watch(options.watch))
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

    devices = MockDevices(home)
    with HttpService(home, Listening(port=port), ServiceSettings(), devices.wake) as service:
        print(f"answering at {service.url}", flush=True)
        threading.Thread(target=devices.work, daemon=True).start()
        sys.stdin.read()
    return 0


class MockDevices:
    """Start jobs, append their events, and finish them: eight at once. As the server of a home they
    hear of new jobs, and look for those of before when they begin."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def wake(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            self._asked.put(job_id)

    def work(self) -> None:
        with closing(open_store(self._home)) as store:
            for job in reversed([*each_job(store.jobs, state=JobState.RUNNING)]):
                self._asked.put(job.job_id)
            happened: dict[str, int] = {}
            while True:
                began = time.monotonic()
                while len(happened) < _AT_ONCE and not self._asked.empty():
                    job_id = self._asked.get()
                    if store.jobs.get(job_id).state is JobState.RUNNING:
                        happened.setdefault(job_id, len(store.events.page(0, [job_id])))
                for job_id in list(happened):
                    if self._advance(store, job_id, happened[job_id]):
                        del happened[job_id]
                    else:
                        happened[job_id] += 1
                time.sleep(max(0.0, began + _EVENT_S - time.monotonic()))

    def _advance(self, store: SqlStore, job_id: str, known: int) -> bool:
        """The next event of a job; whether it was the last."""
        if known >= _EVENTS:
            store.jobs.finish(job_id, JobState.SUCCEEDED, {"stopped": "a mock device"})
            store.events.append(job_id, time.time(), [JobEnded()])
            return True
        event: Event = Note(f"mock event {known}")
        if not known:
            event = JobOpened(job_id, False, store.jobs.get(job_id).spec.budget, 0.0)
        store.events.append(job_id, time.time(), [event])
        return False


class ServiceProcess:
    """The service that a `script` of this folder is with `--serve HOME`; begun again at the same
    port after it was killed."""

    def __init__(self, home: Path, script: str = __file__, *options: str) -> None:
        self._command = [sys.executable, script, "--serve", str(home), *options]
        self.port = 0
        self.begin()

    def begin(self) -> None:
        command = [*self._command, "--port", str(self.port)]
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


class Watchers:
    """A separate process whose clients each follow one job and report the events they received."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--watch", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.watched: list[str] = []

    def watch(self, token: str, job_id: str) -> None:
        assert self._process.stdin is not None
        self.watched.append(job_id)
        self._process.stdin.write(f"{token} {job_id}\n")
        self._process.stdin.flush()

    def seen(self) -> list[list[int]]:
        """The numbers of the events that each saw, once all their jobs have ended."""
        out, _ = self._process.communicate()
        seen: list[list[int]] = json.loads(out)
        return seen


async def watch(url: str) -> int:
    """Follow the jobs of stdin (a token and an id in each line), all at once."""
    clients: dict[str, AsyncClient] = {}
    watching: list[asyncio.Task[list[int]]] = []

    async def follow(client: AsyncClient, job_id: str) -> list[int]:
        return [event["seq"] async for event in client.events(job_id)]

    while line := await asyncio.to_thread(sys.stdin.readline):
        token, job_id = line.split()
        client = clients.setdefault(token, AsyncClient(url, token))
        watching.append(asyncio.create_task(follow(client, job_id)))
    print(json.dumps(await asyncio.gather(*watching)))
    for client in clients.values():
        await client.close()
    return 0


async def loaded(
    home: Path, tokens: list[str], submissions: int, watchers: int, seconds: float
) -> dict[str, Any]:
    """Submissions at random moments of so many seconds; the first jobs are watched."""
    service, timed = ServiceProcess(home), Timed()
    watching = Watchers(service.url)
    clients = [AsyncClient(service.url, token, event_hooks=timed.hooks()) for token in tokens]
    draw, pause_s = random.Random(1), seconds * len(tokens) / submissions
    each_job_s = 2 * pause_s

    async def submit(user: int) -> None:
        for n in range(submissions // len(tokens)):
            await asyncio.sleep(draw.uniform(0, each_job_s))
            view = await clients[user].submit("zoo:tiny_cnn", budget={"trials": 100 + n}, threads=1)
            if len(watching.watched) < watchers:
                watching.watch(tokens[user], view["id"])
            await clients[user].jobs(limit=20)

    try:
        began = time.perf_counter()
        submitting = asyncio.gather(*(submit(user) for user in range(len(tokens))))
        await asyncio.sleep(seconds / 2)
        service.kill()
        killed_at = time.perf_counter()
        await asyncio.to_thread(service.begin)
        timed.leave_out(killed_at, time.perf_counter() + 1.0)
        await submitting
        submitted_s = time.perf_counter() - began
        seen = await asyncio.to_thread(watching.seen)
    finally:
        for client in clients:
            await client.close()
        service.kill()
    with closing(open_store(home)) as store:
        kept = [[each.seq for each in store.events.page(0, [job])] for job in watching.watched]
        entered = len(list(each_job(store.jobs)))
    ordered = sorted(timed.seconds)
    return {
        "users": len(tokens),
        "jobs": entered,
        "asked_for": submissions // len(tokens) * len(tokens),
        "watchers": len(seen),
        "watchers_wrong": sum(a != b for a, b in zip(kept, seen, strict=True)),
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
    made.add_argument("--watch", metavar="URL", help="be the watchers of a service")
    made.add_argument("--port", type=int, default=0)
    common.run(main, made)
