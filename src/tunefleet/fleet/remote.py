"""Stages that other hosts run: they are given through the store, and reported there."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tunefleet.core.hosts import HostIdentity, JoinedHost
from tunefleet.errors import (
    LeaseLostError,
    RetryElsewhereError,
    StoreBusyError,
    TunefleetError,
    internal,
)
from tunefleet.fleet.executor import Assignment, Report, fingerprint_of
from tunefleet.fleet.leases import Leases
from tunefleet.fleet.messages import Offer, assignment_value, offers_of, report_of
from tunefleet.scheduler.values import End
from tunefleet.store import Store

#: Seconds between two looks for reports, and between two for the hosts that are there.
_LOOK_S, _HOSTS_S = 0.1, 0.5
#: Seconds without a heartbeat after which a host counts as lost.
LOST_S = 5.0
#: Seconds that `close` waits for what hosts give up.
_PATIENCE_S = 5.0


@dataclass(slots=True)
class _Out:
    """An assignment that a host has, or is to get: `number` is None until then. `told`: it knows
    that this was abandoned."""

    assignment: Assignment
    executor: RemoteExecutor
    host: HostIdentity | None = None
    number: int | None = None
    abandoned: bool = False
    told: bool = False
    since: float = field(default_factory=time.perf_counter)


class RemoteHosts:
    """The hosts that have joined a store, for one shell.

    A thread gives them work, takes their reports and looks at their heartbeats; it begins with the
    first executor. A host that joins again under its name is another incarnation: what the one
    before had is reported as away, and its late reports are nobody's. `close` ends the thread.
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        report: Callable[[Report], None],
        lost_s: float = LOST_S,
    ) -> None:
        self._store = store
        self._leases = leases
        self._report = report
        self._lost_s = lost_s
        self._giver = uuid.uuid4().hex
        self._orders: queue.SimpleQueue[_Out | int] = queue.SimpleQueue()
        self._out: dict[int, _Out] = {}
        self._hosts: dict[str, JoinedHost] = {}
        self._next_look = self._next_newcomers = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._known: set[str] = set()

    def newcomers(self) -> Iterator[RemoteExecutor]:
        """An executor for each resource that was not there before. Hosts that show no sign of life
        are left out. Of two calls within half a second only the first one looks."""
        if time.monotonic() < self._next_newcomers:
            return
        self._next_newcomers = time.monotonic() + _HOSTS_S
        try:
            hosts = self._store.dispatch.hosts()
        except StoreBusyError:  # the next call sees them
            return
        for host in hosts:
            for offer in offers_of(host.resources):
                executor = RemoteExecutor(self, host.identity.name, offer)
                name = executor.resource.resource_id
                if host.silent_s < self._lost_s and name not in self._known:
                    self._known.add(name)
                    yield executor

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    # What executors ask

    def give(self, executor: RemoteExecutor, assignment: Assignment) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tunefleet-hosts", daemon=True)
            self._thread.start()
        self._orders.put(_Out(assignment, executor))

    def abandon(self, lease: int) -> None:
        self._orders.put(lease)

    def is_there(self, name: str) -> bool:
        """As it was seen last. Raises InternalError where the thread has ended."""
        if self._error is not None:
            raise internal(self._error)
        host = self._hosts.get(name)
        return self._thread is None or (host is not None and host.silent_s < self._lost_s)

    def await_reports(self, executor: RemoteExecutor) -> None:
        """Abandon all that a resource runs, and wait for a while until it is reported."""
        end = time.monotonic() + _PATIENCE_S
        for lease in [*executor.leases]:
            self.abandon(lease)
        while executor.leases and self._error is None and time.monotonic() < end:
            time.sleep(_LOOK_S / 2)

    # The thread

    def _work(self) -> None:
        try:
            while not self._closed.wait(_LOOK_S):
                try:
                    self._look()
                except StoreBusyError:
                    continue  # until it is free
        except Exception as error:
            self._error = error

    def _look(self) -> None:
        self._take_orders()
        if time.monotonic() >= self._next_look:
            self._hosts = {host.identity.name: host for host in self._store.dispatch.hosts()}
            self._next_look = time.monotonic() + _HOSTS_S
        for out in list(self._out.values()):
            self._carry_on(out)
        numbers = {out.number: out for out in self._out.values()}
        for number, value in self._store.dispatch.take_reports(self._giver):
            if number in numbers:  # else its host was given up
                out = numbers[number]
                self._ended(out, self._report_of(out, value))

    def _report_of(self, out: _Out, value: Any) -> Report:
        try:
            return report_of(self._store, out.assignment, value)
        except TunefleetError as error:  # its job was removed, or another version sent it
            return Report(out.assignment, End.FAILED, error=error)

    def _take_orders(self) -> None:
        while True:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                return
            if isinstance(order, _Out):
                self._out[order.assignment.lease] = order
            elif order in self._out:
                self._out[order].abandoned = True

    def _carry_on(self, out: _Out) -> None:
        """Give work that was not given, tell its host that it was abandoned, and answer for a host
        that cannot."""
        host = self._hosts.get(out.executor.host)
        silent = host is None or host.silent_s >= self._lost_s
        if out.number is None and out.abandoned:
            self._ended(out, Report(out.assignment, End.ABANDONED))
        elif out.number is None:
            self._give(out, None if silent else host)
        elif host is None or host.identity != out.host:
            self._away(out)
        elif out.abandoned:
            if not out.told:
                self._store.dispatch.abandon(out.number)
                out.told = True
            if silent:
                self._ended(out, Report(out.assignment, End.ABANDONED))

    def _give(self, out: _Out, host: JoinedHost | None) -> None:
        if host is None:
            self._away(out)
            return
        job_lease = self._leases.of_job(fingerprint_of(out.assignment))
        value = assignment_value(out.assignment, out.executor.offer.name, job_lease)
        try:
            out.number = self._store.dispatch.give(host.identity, self._giver, value)
        except LeaseLostError:
            self._away(out)
        else:
            out.host = host.identity

    def _away(self, out: _Out) -> None:
        if out.abandoned:
            self._ended(out, Report(out.assignment, End.ABANDONED))
            return
        error = RetryElsewhereError(
            f"host {out.executor.host} has ended or was started again",
            cure="see what it says, or start it again: tunefleet host",
        )
        seconds = time.perf_counter() - out.since
        self._ended(out, Report(out.assignment, End.AWAY, seconds, error=error))

    def _ended(self, out: _Out, report: Report) -> None:
        if isinstance(report.error, LeaseLostError):
            try:
                self._leases.check_job(fingerprint_of(out.assignment))
            except TunefleetError as error:
                report = Report(out.assignment, End.FAILED, report.seconds, error=error)
        del self._out[out.assignment.lease]
        self._report(report)
        out.executor.leases.discard(out.assignment.lease)


class RemoteExecutor:
    """A resource of a host, whichever process has its name now."""

    def __init__(self, hosts: RemoteHosts, host: str, offer: Offer) -> None:
        self.resource = offer.resource_of(host)
        self.host = host
        self.offer = offer
        #: What was started and not reported.
        self.leases: set[int] = set()
        self._hosts = hosts

    def start(self, assignment: Assignment) -> None:
        self.leases.add(assignment.lease)
        self._hosts.give(self, assignment)

    def abandon(self, lease: int) -> None:
        self._hosts.abandon(lease)

    def responsive(self) -> bool:
        return self._hosts.is_there(self.host)

    def close(self) -> None:
        self._hosts.await_reports(self)
