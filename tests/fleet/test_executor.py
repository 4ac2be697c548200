"""Whatever happens in a thread of an executor, the shell hears of it."""

from __future__ import annotations

import queue
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


def test_a_thread_that_ends_without_a_report_is_seen_by_the_heartbeat() -> None:
    def fails(report: Report) -> None:
        raise ValueError("no report")

    host = executor(fails)
    host.start(ASSIGNMENT)
    host.close()
    with pytest.raises(InternalError, match="ValueError: no report"):
        host.responsive()
