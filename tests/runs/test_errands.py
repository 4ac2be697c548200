"""Jobs of one call that a server does: they end at once where their user wants it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.runs.served import served
from tunefleet import BenchmarkContext, build
from tunefleet.core.job import Job, JobKind, JobState
from tunefleet.store import open_store

from ..networks import small_beside

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TUNEFLEET = [sys.executable, "-m", "tunefleet"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with an artifact."""
    home = tmp_path_factory.mktemp("home")
    build(small_beside(home), context=BenchmarkContext("cpu", threads=1, home=home))
    return home


def evaluations(home: Path) -> list[Job]:
    with closing(open_store(home)) as store:
        return [job for job in store.jobs.page() if job.spec.kind is JobKind.EVALUATE]


def errand_of(job: Job) -> psutil.Process | None:
    """The process that does a job."""
    for process in psutil.process_iter(["cmdline"]):
        if job.job_id in (process.info["cmdline"] or ()):
            return process
    return None


def workers_of(errand: psutil.Process) -> list[psutil.Process]:
    return [each for each in errand.children(recursive=True) if each.is_running()]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


@pytest.mark.parametrize("by", ["cancel", "Ctrl-C of who follows it"])
def test_an_evaluation_ends_at_once_where_its_user_wants_it(home: Path, by: str) -> None:
    (artifact,) = (home / "artifacts").iterdir()
    rounds = 10**5 + len(by)  # hours; each is a job of its own
    evaluate = ["evaluate", str(artifact), "--rounds", str(rounds), "--home", str(home)]
    with served(home):
        follower = subprocess.Popen(
            [*TUNEFLEET, *evaluate], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        until(lambda: [job for job in evaluations(home) if job.state is JobState.RUNNING])
        (job,) = [job for job in evaluations(home) if job.state is JobState.RUNNING]
        until(lambda: errand_of(job))
        errand = errand_of(job)
        assert errand is not None
        until(lambda: workers_of(errand))
        workers = workers_of(errand)
        if by == "cancel":
            cancel = [*TUNEFLEET, "cancel", job.job_id, "--home", str(home)]
            subprocess.run(cancel, check=True, stdout=subprocess.DEVNULL)
        else:
            os.kill(follower.pid, signal.SIGINT)
        _, err = follower.communicate(timeout=60)
        psutil.wait_procs([errand, *workers], timeout=20)
        assert not [process for process in (errand, *workers) if process.is_running()]
        own = f"tunefleet-*-{errand.pid}-*"
        until(lambda: not list(Path(tempfile.gettempdir()).glob(own)))
    assert follower.returncode == (6 if by == "cancel" else 130)
    assert ("cancelled by its user" in err) == (by == "cancel")
    with closing(open_store(home)) as store:
        assert store.jobs.get(job.job_id).state is JobState.CANCELLED
