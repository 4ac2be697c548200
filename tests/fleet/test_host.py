"""What a host and the one who gives it work tell each other."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.store.values import make_spec, make_task
from tunefleet.core.hosts import HostIdentity
from tunefleet.core.stage import StageKey, StageKind
from tunefleet.core.step import StepKind
from tunefleet.errors import InputError, InternalError, LeaseLostError, SetupError
from tunefleet.fleet.executor import Assignment, Report
from tunefleet.fleet.host import Host
from tunefleet.fleet.leases import Leases
from tunefleet.fleet.messages import (
    SCHEMA,
    assignment_of,
    assignment_value,
    report_of,
    report_value,
)
from tunefleet.fleet.remote import RemoteHosts
from tunefleet.scheduler.values import End
from tunefleet.stages.place import JobTask
from tunefleet.store import MemoryStore
from tunefleet.testing.executor_conformance import until

pytestmark = pytest.mark.tvm

KEY = StageKey("job", "t", 2, StageKind.BUILD)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.jobs.open(make_spec(), job_id="job", now=0.0)
    made.work.put_tasks("job", [make_task()])
    return made


@pytest.fixture
def assignment(store: MemoryStore) -> Assignment:
    lane = JobTask(store.jobs.get("job"), make_task().task)
    return Assignment(KEY, lease=7, attempt=2, lane=lane, batch=3, elapsed_s=1.5, again=True)


def running(store: MemoryStore, ended: threading.Event, errors: list[Exception]) -> Any:
    """The thread of a host without resources."""

    def work() -> None:
        try:
            Host(store, "a", ended).run({})
        except LeaseLostError as error:
            errors.append(error)

    before = store.dispatch.hosts()
    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: [h.identity for h in store.dispatch.hosts()] != [h.identity for h in before])
    return thread


def test_an_assignment_arrives_as_it_was_sent(store: MemoryStore, assignment: Assignment) -> None:
    with Leases(store.coordination).job(make_spec().fingerprint) as lease:
        value = assignment_value(assignment, "host", lease)
    expected = ("host", replace(assignment, lease=9, job_lease=lease))
    assert expected == assignment_of(store, 9, value)


def test_a_bug_arrives_with_where_it_happened(store: MemoryStore, assignment: Assignment) -> None:
    try:
        raise KeyError("misspelt")
    except KeyError as error:
        value = report_value(Report(assignment, End.FAILED, error=error))
    arrived = report_of(store, assignment, value).error
    assert isinstance(arrived, InternalError)
    assert "KeyError: 'misspelt'" in arrived.details


def test_what_a_newer_version_sends_is_refused(store: MemoryStore, assignment: Assignment) -> None:
    value = {**assignment_value(assignment, "host", None), "schema": SCHEMA + 1}
    with pytest.raises(SetupError, match="the same version on all hosts"):
        assignment_of(store, 1, value)


def test_a_step_is_no_work_for_a_host(assignment: Assignment) -> None:
    step = replace(assignment, key=replace(KEY, kind=StepKind.IMPORT))
    with pytest.raises(ValueError, match="import"):
        assignment_value(step, "host", None)


def test_a_host_answers_what_it_cannot_begin(store: MemoryStore, assignment: Assignment) -> None:
    ended = threading.Event()
    thread = running(store, ended, [])
    value = assignment_value(replace(assignment, key=replace(KEY, task_id="gone")), "host", None)
    (host,) = store.dispatch.hosts()
    store.dispatch.give(host.identity, "giver", value)
    until(lambda: store.dispatch.given(host.identity) == [])
    ((_, answer),) = store.dispatch.take_reports("giver")
    report = report_of(store, assignment, answer)
    ended.set()
    thread.join(10)
    assert report.end is End.FAILED
    assert isinstance(report.error, InputError)
    assert store.dispatch.hosts() == []


def test_a_host_that_was_replaced_ends(store: MemoryStore) -> None:
    errors: list[Exception] = []
    ended = threading.Event()
    first = running(store, threading.Event(), errors)
    second = running(store, ended, [])
    first.join(10)
    assert not first.is_alive()
    assert isinstance(errors[0], LeaseLostError)
    assert len(store.dispatch.hosts()) == 1
    ended.set()
    second.join(10)


def test_a_host_that_is_dismissed_ends(store: MemoryStore) -> None:
    thread = running(store, threading.Event(), [])
    store.dispatch.dismiss("a")
    thread.join(10)
    assert not thread.is_alive()


def test_a_host_that_is_silent_is_no_newcomer(store: MemoryStore) -> None:
    offer = {"name": "host", "role": "host", "kind": "k", "schema": SCHEMA}
    newer = {**offer, "name": "more", "schema": SCHEMA + 1}
    store.dispatch.join(HostIdentity("a", "1"), [offer, newer])
    leases = Leases(store.coordination)
    silent = RemoteHosts(store, leases, lambda report: None, lost_s=0.0)
    assert list(silent.newcomers()) == []
    hosts = RemoteHosts(store, leases, lambda report: None)
    assert [e.resource.resource_id for e in hosts.newcomers()] == ["a/host"]
    assert list(hosts.newcomers()) == []
