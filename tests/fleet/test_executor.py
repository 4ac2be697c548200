"""Whatever happens in a thread of an executor, the shell hears of it."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tunefleet.core.stage import StageKey, StageKind
from tunefleet.errors import InternalError
from tunefleet.fleet.executor import Assignment, LocalExecutor, Report
from tunefleet.fleet.leases import Leases
from tunefleet.scheduler.values import End, Resource, Role
from tunefleet.store import MemoryStore

pytestmark = pytest.mark.tvm

#: A stage that nothing can run: its executor has no runner.
ASSIGNMENT = Assignment(StageKey("job", "task", 0, StageKind.SELECT), lease=1, attempt=1)
HOST = Resource("host", Role.HOST, "host", frozenset({"core 0"}))
NOTHING: Any = None


def executor(report: Any) -> LocalExecutor:
    leases = Leases(MemoryStore().coordination)
    return LocalExecutor(HOST, (), NOTHING, NOTHING, leases, report, NOTHING)


def test_a_bug_in_a_stage_is_reported() -> None:
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    host = executor(reports.put)
    host.start(ASSIGNMENT)
    report = reports.get(timeout=10)
    assert report.end is End.FAILED
    assert isinstance(report.error, TypeError)
    assert host.responsive()


def test_what_a_stage_uses_beside_its_device_is_shared_and_given_back() -> None:
    """Cores that launch for GPUs: for several at once, and not while they are measured on."""
    leases, cores = Leases(MemoryStore().coordination), frozenset({"core 0"})
    claims = leases._coordination.claims
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    together = threading.Barrier(3)
    lane: Any = SimpleNamespace(
        job=SimpleNamespace(spec=SimpleNamespace(fingerprint="")), task=SimpleNamespace(name="t")
    )

    class Runner:
        def run(self, *args: Any) -> None:
            together.wait(10)
            together.wait(10)
            raise KeyError("over")

    runner: Any = Runner()
    measured = leases.claim(cores)
    leases.acquire(measured, NOTHING, NOTHING)
    for number in range(2):
        gpu = Resource(f"cuda:{number}", Role.DEVICE, "gpu", frozenset({f"gpu {number}"}))
        LocalExecutor(
            gpu, (), runner, NOTHING, leases, reports.put, print, (), lambda kind: cores
        ).start(replace(ASSIGNMENT, lane=lane))
    while len(claims()) < 5:
        assert reports.empty()
    assert [s.granted for s in claims() if s.claim.units == cores and s.granted] == [True]
    leases.release(measured)
    together.wait(10)  # both run
    assert [status.granted for status in claims()] == [True] * 4
    together.wait(10)
    errors = [reports.get(timeout=10).error for _ in range(2)]
    assert [KeyError, KeyError] == [type(error) for error in errors]
    assert claims() == []


def test_a_device_that_jobs_share_is_leased_by_several_stages_at_once() -> None:
    leases = Leases(MemoryStore().coordination)
    lane: Any = SimpleNamespace(task=SimpleNamespace(name="t"))
    cores = frozenset({"core 0"})
    shared, alone = (
        LocalExecutor(
            Resource(name, Role.DEVICE, "cpu", cores, shareable=name == "shared"),
            (), NOTHING, NOTHING, leases, NOTHING, NOTHING,
        )
        for name in ("shared", "alone")
    )  # fmt: skip
    assignment = replace(ASSIGNMENT, lane=lane)
    [one], [other], [own] = (e._claims(assignment) for e in (shared, shared, alone))
    assert not one.excludes(other)
    assert one.excludes(own)


def test_a_thread_that_ends_without_a_report_is_seen_by_the_heartbeat() -> None:
    def fails(report: Report) -> None:
        raise ValueError("no report")

    host = executor(fails)
    host.start(ASSIGNMENT)
    host.close()
    with pytest.raises(InternalError, match="ValueError: no report"):
        host.responsive()
