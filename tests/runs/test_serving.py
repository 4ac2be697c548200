"""A server of a home, and commands that give it their jobs: whole processes, as users have them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tunefleet.core.home import Home
from tunefleet.core.job import Job, JobState
from tunefleet.fleet.server_socket import ServerRequest, ask
from tunefleet.store import each_job, open_store

from ..networks import small_beside, write_small

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks, pytest.mark.slow]

TUNEFLEET = [sys.executable, "-m", "tunefleet"]


class ServedHome:
    """A home, and the commands of a test that are to end with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun: list[subprocess.Popen[str]] = []

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*TUNEFLEET, *arguments, "--home", str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._begun.append(process)
        return process

    def server(self) -> int:
        """The process that serves the home, once one does."""
        answered = None
        until(lambda: (answered := ask(Home(self.path), ServerRequest("hello"))) is not None)
        answered = ask(Home(self.path), ServerRequest("hello"))
        assert answered is not None
        return answered.pid

    def jobs(self) -> list[Job]:
        if not Home(self.path).store.is_file():
            return []
        with closing(open_store(self.path)) as store:
            return list(each_job(store.jobs))

    def close(self) -> None:
        ask(Home(self.path), ServerRequest("stop"))
        for process in self._begun:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ServedHome]:
    served = ServedHome(tmp_path / "home")
    yield served
    served.close()


def until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


@pytest.mark.long
def test_jobs_of_two_commands_survive_their_server(home: ServedHome) -> None:
    """They are interleaved, each trial is made once, and who watches misses nothing."""
    serve = home.command("serve")
    home.server()
    other = str(write_small(home.path.with_name("other.onnx"), channels=16))
    first = home.command("tune", small_beside(home.path), "--trials", "16", "--json", "-")
    until(lambda: home.jobs())
    job = home.jobs()[0].job_id
    watch = home.command("watch", job, "--json")
    second = home.command("tune", other, "--trials", "16", "--json", "-")
    with_trials = lambda: _trials(home, job) >= 4  # noqa: E731
    until(with_trials)
    os.kill(serve.pid, signal.SIGKILL)
    results = []
    for process in (first, second):
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        results += json.loads(out)
    assert home.server() != serve.pid  # a command began the next one
    assert all(result["trials"] == 16 for result in results)
    with closing(open_store(home.path)) as store:
        assert {JobState.SUCCEEDED} == {each.state for each in each_job(store.jobs)}
        for each in each_job(store.jobs):
            trials = store.records.trials(each.job_id)
            assert len({t.candidate.candidate_id for t in trials}) == len(trials) == 16
        kept = [each.seq for each in store.events.page(job_ids=[job], limit=10**6)]
        spans = store.work.stages_between(0.0, time.time())
    began = {each: min(s.started_at for s in spans if s.key.job_id == each) for each in
             {s.key.job_id for s in spans}}  # fmt: skip
    ended = {each: max(s.ended_at for s in spans if s.key.job_id == each) for each in began}
    assert max(began.values()) < min(ended.values())  # neither waited for the other's end
    out, _ = watch.communicate(timeout=60)
    seen = [json.loads(line)["seq"] for line in out.splitlines()]
    assert seen == kept


@pytest.mark.long
def test_a_job_left_to_a_server_is_done_without_its_command(home: ServedHome) -> None:
    left = home.command("tune", small_beside(home.path), "--trials", "8", "--detach", "--json", "-")
    out, err = left.communicate(timeout=120)
    assert left.returncode == 0, err
    (job,) = json.loads(out)
    watch = home.command("watch", job["job"])
    shown, _ = watch.communicate(timeout=240)
    assert shown.endswith(": succeeded\n")
    # The same command is another job then, and the server of before does it.
    server = home.server()
    stopped = home.command("serve", "--stop")
    out, _ = stopped.communicate(timeout=60)
    assert f"process {server} ends after what runs" in out
    until(lambda: ask(Home(home.path), ServerRequest("hello")) is None)
    again = home.command("serve", "--stop")
    _, err = again.communicate(timeout=60)
    assert (again.returncode, "no server runs" in err) == (2, True)


def test_a_command_that_is_interrupted_stops_its_jobs_and_goes_on_later(home: ServedHome) -> None:
    home.command("serve")
    server = home.server()
    command = ("tune", small_beside(home.path), "--trials", "24", "--json", "-")
    first = home.command(*command)
    until(lambda: home.jobs() and _trials(home, home.jobs()[0].job_id) >= 4)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "the same command continues" in err
    job = home.jobs()[0].job_id
    time.sleep(4)
    before = _trials(home, job)
    time.sleep(2)
    assert _trials(home, job) == before < 24
    home.command(*command)
    until(lambda: _trials(home, job) > before)
    assert (home.server(), len(home.jobs())) == (server, 1)


def _trials(home: ServedHome, job_id: str) -> int:
    with closing(open_store(home.path)) as store:
        return store.records.trial_count(job_id)
