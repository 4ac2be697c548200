"""A `tunefleet serve` killed while clients watch its jobs, for `kill_resume.py`.

Jobs are left to the server of a home, two at a time; three clients watch each. The server gets
SIGKILL or SIGTERM at a random moment and the next one goes on. Each client must have been told
every event once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PROGRAM = str(Path(sys.executable).parent / "tunefleet")
_WATCHERS = 3
#: Seconds between a server's first answer and its end, at most; and for a job to end.
_LIVES_S, _HANGS_S = 25.0, 900.0

#: What must not happen.
FAULTS = (
    "a client missed an event or saw one twice",
    "a client did not end well",
    "a job left to servers did not succeed",
    "a server does not begin",
)


@dataclass
class Server:
    """The server of a home, begun again after each blow."""

    home: Path
    options: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def begin(self) -> bool:
        from tunefleet.core.home import Home
        from tunefleet.fleet.server_socket import ServerRequest, ask

        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [_PROGRAM, "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.options,
                start_new_session=True,
            )
        until = time.monotonic() + 120
        while time.monotonic() < until and self.process.poll() is None:
            answer = ask(Home(self.home), ServerRequest("hello"))
            if answer is not None and answer.pid == self.process.pid:
                return True
            time.sleep(0.05)
        return False

    def strike(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:  # it waits for what runs
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Left:
    """A job that was left to the server, and who watches it."""

    job_id: str
    clients: list[subprocess.Popen[bytes]]
    outputs: list[Path]

    def seen(self) -> list[list[int]]:
        return [
            [json.loads(line)["seq"] for line in path.read_text(encoding="utf-8").splitlines()]
            for path in self.outputs
        ]


@dataclass
class ServerKills:
    """What was done and seen."""

    blows: list[dict[str, Any]] = field(default_factory=list)
    events: int = 0
    jobs: int = 0
    faults: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in FAULTS})

    def fault(self, name: str, text: str) -> None:
        self.faults[name].append(text)
        print(f"  FAULT {name}: {text}", flush=True)


def kill_servers(
    home: Path,
    temporary: Path,
    options: Sequence[str],
    kills: int,
    seed: int,
    networks: Iterator[str],
    look: Callable[[str], None],
) -> ServerKills:
    """Kill the server of a home so many times; `networks` gives those that were not tuned yet,
    `look` is called after each blow."""
    told = ServerKills()
    draw = random.Random(seed)
    environment = os.environ | {"TUNEFLEET_HOME": str(home), "TMPDIR": str(temporary)}
    server = Server(home, environment, home.with_name("serve.txt"))
    with ExitStack() as closing:
        closing.callback(server.close)
        while len(told.blows) < kills:
            if not server.begin():
                told.fault("a server does not begin", server.log.read_text(encoding="utf-8")[-300:])
                return told
            jobs = [_leave(next(networks), options, environment, home) for _ in range(2)]
            for job in jobs:
                closing.callback(_end, job.clients)
            while any(client.poll() is None for job in jobs for client in job.clients):
                if len(told.blows) < kills and _waits(jobs, draw.uniform(0.5, _LIVES_S)):
                    number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
                    server.strike(number)
                    told.blows.append({"signal": number.name, "at": time.time()})
                    look(f"blow {len(told.blows)} to the server, {number.name}")
                    if not server.begin():
                        log = server.log.read_text(encoding="utf-8")
                        told.fault("a server does not begin", log[-300:])
                        return told
                elif not _waits(jobs, _HANGS_S):
                    break
                else:
                    told.fault("a client did not end well", "it hangs")
                    return told
            for job in jobs:
                _compare(home, job, told)
            server.strike(signal.SIGKILL)
    return told


def _leave(network: str, options: Sequence[str], environment: dict[str, str], home: Path) -> Left:
    command = [_PROGRAM, "tune", network, *options, "--detach", "--json", "-"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (job,) = json.loads(out.stdout)
    clients, outputs = [], []
    for number in range(_WATCHERS):
        outputs.append(home.with_name(f"watch-{job['job']}-{number}"))
        with outputs[-1].open("wb") as output:
            clients.append(
                subprocess.Popen(
                    [_PROGRAM, "watch", job["job"], "--json"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    env=environment,
                )
            )
    return Left(job["job"], clients, outputs)


def _waits(jobs: Sequence[Left], seconds: float) -> bool:
    """Wait for the clients of jobs; whether one still watches."""
    until = time.monotonic() + seconds
    for job in jobs:
        for client in job.clients:
            with suppress(subprocess.TimeoutExpired):
                client.wait(max(0.0, until - time.monotonic()))
    return any(client.poll() is None for job in jobs for client in job.clients)


def _compare(home: Path, job: Left, told: ServerKills) -> None:
    from tunefleet.store import open_store

    store = open_store(home)
    try:
        state = store.jobs.get(job.job_id).state
        kept, after = [], 0
        while page := store.events.page(after, [job.job_id]):
            kept += [each.seq for each in page]
            after = kept[-1]
    finally:
        store.close()
    told.jobs += 1
    told.events += len(kept)
    if str(state) != "succeeded":
        told.fault("a job left to servers did not succeed", f"{job.job_id}: {state}")
    for seen, client in zip(job.seen(), job.clients, strict=True):
        if client.returncode != 0:
            told.fault("a client did not end well", f"exit code {client.returncode}")
        if seen != kept:
            text = f"{job.job_id}: {len(seen)} of {len(kept)}, twice {len(seen) - len(set(seen))}"
            told.fault("a client missed an event or saw one twice", text)


def _end(clients: Sequence[subprocess.Popen[bytes]]) -> None:
    for client in clients:
        if client.poll() is None:
            client.kill()
        client.wait()
