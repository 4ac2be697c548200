"""The service killed while jobs run and clients watch.

Jobs of several users run under `tunefleet serve --http`, and clients watch each by HTTP. The
process gets SIGKILL at a random moment and is begun again at the same address. In the end each
client must have seen every event that the store kept, in its order and once, each job must have
succeeded with exactly the trials that it was given, and no trial may be there twice.

    .venv/bin/python benchmarks/kill_service.py --kills 50 --json out.json
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
from service_load import token_of
from tunefleet.client import AsyncClient
from tunefleet.core.job import JobState
from tunefleet.store import Store, open_store

_USERS, _JOBS, _WATCHERS, _TRIALS = 3, 5, 20, 64
#: Seconds for which the end may last.
_HANGS_S = 1800.0


class KilledService:
    """`tunefleet serve --http`, begun again at the same port."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._log = home.with_name("serve.txt")
        self.port = 0
        self.begin()

    def begin(self) -> None:
        command = [str(Path(sys.executable).parent / "tunefleet"), "serve", "--threads", "1"]
        told = len(self._text())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--http", f"127.0.0.1:{self.port}", "--home", str(self._home)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + 120
        while not (found := re.findall(r"answering at \S+:(\d+)", self._text()[told:])):
            if time.monotonic() > until or self._process.poll() is not None:
                raise RuntimeError(f"the service does not begin: {self._text()[-500:]}")
            time.sleep(0.05)
        self.port = int(found[0])

    def _text(self) -> str:
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Watched:
    """A job, and what each of its watchers saw."""

    job_id: str
    seen: list[list[int]]


async def killed(home: Path, kills: int, seed: int, lives_s: float) -> dict[str, Any]:
    draw = random.Random(seed)
    with closing(open_store(home)) as store:
        tokens = [token_of(store, f"user{n}") for n in range(_USERS)]
    service = await asyncio.to_thread(KilledService, home)
    clients = [AsyncClient(f"http://127.0.0.1:{service.port}", token) for token in tokens]
    all_watched: list[Watched] = []
    watching: set[asyncio.Task[None]] = set()
    number = done = 0

    async def watch(client: AsyncClient, job_id: str, seen: list[int]) -> None:
        async for event in client.events(job_id):
            seen.append(event["seq"])

    async def submit() -> None:
        nonlocal number
        number += 1
        client = clients[number % _USERS]
        network = f"zoo:tiny_cnn?size={16 + 8 * (number % 40)}"
        view = await client.submit(network, budget={"trials": _TRIALS}, threads=1)
        watched = Watched(view["id"], [[] for _ in range(_WATCHERS // _JOBS)])
        all_watched.append(watched)
        for seen in watched.seen:
            watching.add(asyncio.create_task(watch(client, view["id"], seen)))

    try:
        while done < kills:
            finished = {task for task in watching if task.done()}
            for task in finished:
                task.result()
            watching -= finished
            while len(watching) < _WATCHERS:
                await submit()
            await asyncio.sleep(draw.uniform(0.5, lives_s))
            await asyncio.to_thread(service.kill)
            done += 1
            print(f"kill {done}", flush=True)
            await asyncio.to_thread(service.begin)
        await asyncio.wait_for(asyncio.gather(*watching), _HANGS_S)
    finally:
        for client in clients:
            await client.close()
        await asyncio.to_thread(service.kill)
    with closing(open_store(home)) as store:
        return {"kills": done, "jobs": len(all_watched)} | _compared(store, all_watched)


def _compared(store: Store, all_watched: list[Watched]) -> dict[str, Any]:
    wrong = failed = short = doubled = events = trials = 0
    for watched in all_watched:
        kept: list[int] = []
        while page := store.events.page(kept[-1] if kept else 0, [watched.job_id]):
            kept += [each.seq for each in page]
        events += len(kept)
        wrong += sum(seen != kept for seen in watched.seen)
        failed += store.jobs.get(watched.job_id).state is not JobState.SUCCEEDED
        made = store.records.trials(watched.job_id)
        trials += len(made)
        short += len(made) != _TRIALS
        candidates = [(trial.candidate.candidate_id, trial.iteration) for trial in made]
        doubled += len(candidates) - len(set(candidates))
    return {
        "trials": trials,
        "events": events,
        "clients_wrong": wrong,
        "jobs_failed": failed,
        "jobs_without_exactly_their_trials": short,
        "trials_twice": doubled,
    }


def main(options: argparse.Namespace) -> int:
    started = time.time()
    kills = 3 if options.quick else options.kills
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        home = Path(folder, "home")
        home.mkdir()
        figures = asyncio.run(killed(home, kills, options.seed, options.lives))
    common.table([figures], list(figures))
    checks = [
        common.at_most(name.replace("_", " "), figures[name], 0, "condition", any_size=True)
        for name in (
            "clients_wrong",
            "jobs_failed",
            "jobs_without_exactly_their_trials",
            "trials_twice",
        )
    ]
    return common.finish("kill_service", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("The service killed while jobs run and clients watch.")
    made.add_argument("--kills", type=int, default=50)
    made.add_argument("--lives", type=float, default=20.0, help="most seconds of a service")
    made.add_argument("--seed", type=int, default=1)
    common.run(main, made)
