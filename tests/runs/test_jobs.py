from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.store.values import commit_measured, make_spec, make_task
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.job import JobState
from tunefleet.errors import InputError
from tunefleet.fleet.leases import Leases
from tunefleet.runs.jobs import (
    INTERRUPTED,
    STATES,
    UNSERVED,
    JobStatus,
    cancel_interrupted,
    list_jobs,
    remove_jobs,
    status_of,
)
from tunefleet.store import open_store

FIRST, SECOND = "a" * 32, "b" * 32
RUN, PAUSE, CANCEL = ControlRequest.RUN, ControlRequest.PAUSE, ControlRequest.CANCEL


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two jobs, with a trial each."""
    store = open_store(tmp_path)
    for number, job in enumerate((FIRST, SECOND)):
        store.jobs.open(make_spec(f"net{number}"), job_id=job, now=1.0 + number)
        store.work.put_tasks(job, [make_task()])
        commit_measured(store, {job: 1e-3}, job_id=job)
    store.close()
    return tmp_path


@contextmanager
def working_on(home: Path, name: str) -> Iterator[None]:
    """As if a process worked on a job."""
    fingerprint = make_spec(name).fingerprint
    with closing(open_store(home)) as store, Leases(store.coordination).job(fingerprint):
        yield


@pytest.mark.parametrize(
    ("expected", "state", "worked_on", "wanted", "delivered"),
    [
        (JobStatus("running"), JobState.RUNNING, True, RUN, False),
        (JobStatus("paused", "by its user"), JobState.RUNNING, True, PAUSE, False),
        (JobStatus("cancelling", "what runs of it is ending"), JobState.RUNNING, True, CANCEL, 0),
        (JobStatus("paused", INTERRUPTED), JobState.RUNNING, False, RUN, False),
        (JobStatus("succeeded"), JobState.SUCCEEDED, False, RUN, True),
        (JobStatus("failed", "why"), JobState.FAILED, False, RUN, False),
        (JobStatus("cancelled", "why"), JobState.CANCELLED, False, RUN, False),
        (JobStatus("expired", "why"), JobState.EXPIRED, False, RUN, False),
    ],
)
def test_the_state_of_a_job(
    expected: JobStatus, state: JobState, worked_on: bool, wanted: ControlRequest, delivered: bool
) -> None:
    status = status_of(
        state, worked_on=worked_on, wanted=wanted, delivered=bool(delivered), stopped="why"
    )
    assert status == expected
    assert status.state in STATES


@pytest.mark.parametrize(("wanted", "reason"), [(RUN, UNSERVED), (PAUSE, "by its user")])
def test_a_job_left_to_a_server_waits_for_the_next_one(wanted: ControlRequest, reason: str) -> None:
    status = status_of(
        JobState.RUNNING, worked_on=False, wanted=wanted, delivered=False, stopped="", served=True
    )
    assert status == JobStatus("paused", reason)


def test_a_delivered_job_waits_for_the_others_of_its_command() -> None:
    status = status_of(JobState.RUNNING, worked_on=True, wanted=RUN, delivered=True, stopped="")
    assert status.state == "running"
    assert "waiting for the other networks" in status.reason


def test_jobs_are_listed_by_state_and_newest_first(home: Path) -> None:
    store = open_store(home)
    store.jobs.finish(
        FIRST,
        JobState.SUCCEEDED,
        {"tuned_ms": {"median": 1.5, "low": 1.5, "high": 1.5}, "run": FIRST},
    )
    store.close()
    with working_on(home, "net1"):
        assert [(j["job"], j["state"]) for j in list_jobs(home)] == [
            (SECOND, "running"),
            (FIRST, "succeeded"),
        ]
        assert [j["job"] for j in list_jobs(home, limit=1)] == [SECOND]
        assert [j["job"] for j in list_jobs(home, ["succeeded"], limit=1)] == [FIRST]
    [succeeded] = list_jobs(home, ["succeeded"])
    assert (succeeded["latency_ms"], succeeded["speedup"], succeeded["trials"]) == (1.5, None, 1)
    assert succeeded["budget"]["trials"] == make_spec().budget.trials


def test_a_removed_job_is_gone_with_its_records(home: Path) -> None:
    assert [job.job_id for job in remove_jobs(home, [FIRST[:8], FIRST])] == [FIRST]
    assert [job["job"] for job in list_jobs(home)] == [SECOND]


def test_a_running_job_is_not_removed_and_none_beside_it(home: Path) -> None:
    with (
        working_on(home, "net1"),
        pytest.raises(InputError, match="is running"),
    ):
        remove_jobs(home, [FIRST, SECOND])
    assert len(list_jobs(home)) == 2


def test_only_a_job_that_no_process_works_on_is_cancelled_here(home: Path) -> None:
    store = open_store(home)
    second, first = store.jobs.page()
    store.close()
    with working_on(home, first.spec.network.name):
        assert not cancel_interrupted(home, first)
    assert cancel_interrupted(home, second)
    assert {j["job"]: j["state"] for j in list_jobs(home)} == {
        SECOND: "cancelled",
        FIRST: "paused",
    }
