from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.store.values import make_spec
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.job import JobState
from tunefleet.fleet.leases import Leases
from tunefleet.store import open_store

from .conftest import Invoke

JOB = "c0ffee" + "0" * 26


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = open_store(tmp_path)
    store.jobs.open(make_spec("net"), job_id=JOB, now=1.0)
    store.close()
    return tmp_path


@contextmanager
def working_on(home: Path) -> Iterator[None]:
    """As if a process worked on the job."""
    store = open_store(home)
    with Leases(store.coordination).job(make_spec("net").fingerprint):
        yield
    store.close()


def wanted(home: Path) -> ControlRequest:
    with closing(open_store(home)) as store:
        return store.coordination.wanted(JOB)


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        ("pause", ControlRequest.PAUSE),
        ("cancel", ControlRequest.CANCEL),
        ("resume", ControlRequest.RUN),
    ],
)
def test_a_running_job_is_told_what_is_wanted(
    invoke: Invoke, home: Path, verb: str, expected: ControlRequest
) -> None:
    with closing(open_store(home)) as store:
        store.coordination.ask(JOB, ControlRequest.PAUSE)
    with working_on(home):
        ended = invoke(verb, "c0ffee", "--home", str(home))
    assert (ended.code, ended.err) == (0, "")
    assert "job c0ffee00 (net)" in ended.out
    assert wanted(home) is expected


@pytest.mark.parametrize("name", ["c0", "abcdef", JOB + "0"])
def test_an_unknown_job_is_refused(invoke: Invoke, home: Path, name: str) -> None:
    ended = invoke("pause", name, "--home", str(home))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_a_job_that_is_over_cannot_be_cancelled(invoke: Invoke, home: Path) -> None:
    store = open_store(home)
    store.jobs.finish(JOB, JobState.SUCCEEDED, {})
    store.close()
    ended = invoke("cancel", JOB, "--home", str(home))
    assert ended.code == 2
    assert "has succeeded" in ended.err


def test_a_job_that_no_process_works_on_is_cancelled_at_once(invoke: Invoke, home: Path) -> None:
    ended = invoke("cancel", JOB, "--home", str(home))
    assert (ended.code, ended.err) == (0, "")
    store = open_store(home)
    assert [job.state for job in store.jobs.page()] == [JobState.CANCELLED]
    store.close()
    assert wanted(home) is ControlRequest.RUN
