"""Runs that are timed are jobs of the artifact's home."""

from __future__ import annotations

import shutil
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.runs.test_evaluation import an_artifact
from tunefleet.core.coordination import ProcessIdentity
from tunefleet.core.device import THIS_MACHINE
from tunefleet.core.statistics import Interval
from tunefleet.errors import InputError
from tunefleet.fleet.leases import Leases, units_alone
from tunefleet.hardware.processor import machine_layout
from tunefleet.runs.errands import timed_run
from tunefleet.runs.jobs import list_jobs
from tunefleet.store import open_store

MEASURED = Interval(2e-3, 1e-3, 3e-3)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    open_store(tmp_path).close()
    made = an_artifact(tmp_path)
    made.module.write_bytes(b"code")
    return made.path


def test_a_run_that_is_timed_is_a_job(artifact: Path, tmp_path: Path) -> None:
    assert (
        pytest.approx(MEASURED.median)
        == timed_run(artifact, tmp_path, "x", lambda: MEASURED).median
    )
    (job,) = list_jobs(tmp_path)
    assert (job["kind"], job["state"], job["reason"]) == ("run", "succeeded", "")
    assert (pytest.approx(2.0), None) == (job["latency_ms"], job["speedup"])


def test_one_that_fails_says_so(artifact: Path, tmp_path: Path) -> None:
    def fails() -> Interval:
        raise InputError("no such shape")

    with pytest.raises(InputError):
        timed_run(artifact, tmp_path, "x", fails)
    (job,) = list_jobs(tmp_path)
    assert (job["state"], job["reason"]) == ("failed", "no such shape")


def test_an_artifact_of_another_place_is_no_job_of_the_home(artifact: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(artifact, tmp_path / "copy"))
    assert timed_run(copied, tmp_path, "x", lambda: MEASURED) == MEASURED
    assert list_jobs(tmp_path) == []


def test_it_waits_for_who_measures_there(artifact: Path, tmp_path: Path) -> None:
    """As long as that lasts, and says so."""
    told: list[str] = []
    done = threading.Event()
    other = ProcessIdentity(socket.gethostname(), "elsewhere", 1, 1)
    units = units_alone("", THIS_MACHINE, machine_layout().layout)

    def measure() -> Interval:
        done.set()
        return MEASURED

    with (
        closing(open_store(tmp_path)) as store,
        closing(Leases(store.coordination, process=other)) as leases,
    ):
        with leases.held(leases.claim(units, purpose="profile"), lambda event: None):
            thread = threading.Thread(
                target=timed_run, args=(artifact, tmp_path, "x", measure, told.append)
            )
            thread.start()
            assert not done.wait(3.0)
        assert done.wait(30.0)
        thread.join()
    assert "profile" in told[0]
