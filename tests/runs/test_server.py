"""What a server does with a job that it cannot do, and who may replace a job."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.served import served
from tests.store.values import make_spec
from tunefleet import BenchmarkContext
from tunefleet.core.coordination import ProcessIdentity
from tunefleet.core.events import JobEnded
from tunefleet.core.importing import DEFAULT_IMPORT, NetworkSource
from tunefleet.core.job import JobTerms
from tunefleet.errors import StoreBusyError
from tunefleet.fleet.leases import Leases
from tunefleet.runs.request import enter_job
from tunefleet.store import MemoryStore, open_store

pytestmark = pytest.mark.tvm

SOURCE = NetworkSource("zoo:tiny_cnn", "tiny_cnn", "0" * 64, DEFAULT_IMPORT)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a job for another device, left to a server."""
    spec = replace(make_spec(), source=SOURCE, terms=JobTerms(served=True))
    with closing(open_store(tmp_path)) as store:
        store.jobs.open(spec, job_id="job", now=1.0)
    return tmp_path


def test_a_job_that_cannot_be_done_here_ends_for_those_who_follow_it(home: Path) -> None:
    with served(home), closing(open_store(home)) as store:
        deadline = time.monotonic() + 60
        while not (kept := store.events.page(0, ["job"])):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    ended = kept[-1].event
    assert isinstance(ended, JobEnded)
    assert "another device" in ended.error


def test_a_job_that_another_process_works_on_is_not_replaced(tmp_path: Path) -> None:
    store, spec = MemoryStore(), make_spec()
    store.jobs.open(spec, job_id="first", now=1.0)
    other = Leases(
        store.coordination, process=ProcessIdentity(socket.gethostname(), "elsewhere", 1, 1)
    )
    with closing(other), other.job(spec.fingerprint):
        with pytest.raises(StoreBusyError, match="process 1"):
            enter_job(store, spec, BenchmarkContext("cpu", home=tmp_path), new=True)
        assert [job.job_id for job in store.jobs.page()] == ["first"]
