"""Networks tuned with a host in a process and a home of its own, which stands for another machine:
it knows the addresses of the store and of the blobs."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS
from tunefleet import BenchmarkContext, tune
from tunefleet.cli.app import run
from tunefleet.core.events import StageCommitted, StageStarted
from tunefleet.core.home import Home
from tunefleet.core.stage import StageKind
from tunefleet.store import open_store
from tunefleet.testing.executor_conformance import until

from ..networks import small_beside

pytestmark = pytest.mark.tvm

TRIALS = 16
NAME = "other"


@contextlib.contextmanager
def hosting(home: Path, own: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A host for the jobs of a home, and the URL of its store."""
    url = f"sqlite:///{Home(home).store}"
    addresses = ["--store", url, "--blobs", Home(home).objects.as_uri()]
    command = [sys.executable, "-m", "tunefleet", "host", *addresses, "--name", NAME]
    with (
        closing(open_store(home)) as store,
        subprocess.Popen([*command, "--host-cores", "0", "--home", str(own), *options]) as process,
    ):
        try:
            until(lambda: bool(store.dispatch.hosts()))
            yield process, url
        finally:
            process.kill()


def tuned(home: Path, heard: Callable[[Any], None]) -> list[StageCommitted]:
    """The stages of the search of a small network, whose result is as it should be."""
    committed: list[StageCommitted] = []

    def observe(event: Any) -> None:
        if isinstance(event, StageCommitted):
            committed.append(event)
        heard(event)

    context = BenchmarkContext(home=home, threads=1, host_cores=(0,), device_cores=(1,))
    (outcome,) = tune(
        [small_beside(home)],
        context=context,
        observer=lambda index: observe,
        trials=TRIALS,
        settings=SETTINGS,
    )
    assert outcome.result is not None, outcome.error
    assert outcome.result.trials == TRIALS
    assert outcome.result.verified or outcome.result.why_plain
    return committed


@pytest.mark.long
def test_another_host_takes_stages_of_a_search(tmp_path: Path) -> None:
    home, own = tmp_path / "home", tmp_path / "own"
    with hosting(home, own) as (process, url):
        committed = tuned(home, lambda event: None)
        assert run(["host", "--store", url, "--name", NAME, "--stop"]) == 0
        assert process.wait(30) == 0
        assert run(["host", "--store", url, "--name", NAME, "--stop"]) == 2
    ran = {(event.run.key.kind, event.run.resource_id) for event in committed}
    assert (StageKind.BUILD, f"{NAME}/host") in ran
    assert {name for kind, name in ran if kind is StageKind.PROFILE} == {"device"}
    assert not Home(own).store.exists()
    assert not Home(own).objects.exists()


@pytest.mark.long
def test_a_host_that_is_killed_costs_no_trial(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with hosting(home, tmp_path / "own") as (process, _):

        def kill(event: Any) -> None:
            if isinstance(event, StageStarted) and event.resource_id == f"{NAME}/host":
                process.kill()

        committed = tuned(home, kill)
        assert process.wait(10) == -9
    keys = [event.run.key for event in committed]
    assert len(set(keys)) == len(keys)
    with closing(open_store(home)) as store:
        (job,) = store.jobs.page()
        trials = store.records.trials(job.job_id)
    assert len(trials) == TRIALS


@pytest.mark.long
def test_a_host_that_joins_a_job_that_runs_takes_stages_of_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with contextlib.ExitStack() as stack:
        there: list[str] = []

        def join(event: Any) -> None:
            if isinstance(event, StageCommitted) and not there:
                there.append(stack.enter_context(hosting(home, tmp_path / "own"))[1])

        committed = tuned(home, join)
    assert f"{NAME}/host" in {event.run.resource_id for event in committed}


def test_a_host_measures_where_it_is_to(tmp_path: Path) -> None:
    """Never while the home measures, since both are of this machine."""
    home, own = tmp_path / "home", tmp_path / "own"
    with hosting(home, own, "--measure", "--threads", "1", "--device-cores", "1"):
        committed = tuned(home, lambda event: None)
    profiles = [event.run for event in committed if event.run.key.kind is StageKind.PROFILE]
    assert f"{NAME}/device" in {run.resource_id for run in profiles}
    profiles.sort(key=lambda run: run.started_at)
    for one, other in itertools.pairwise(profiles):
        assert one.started_at + one.seconds <= other.started_at + 0.01
