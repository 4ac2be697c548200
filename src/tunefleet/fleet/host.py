"""A host that runs stages for others: of its own home, it knows the addresses of a store and of
blobs."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from tunefleet.compiler.toolchain import toolchain_identity
from tunefleet.core.device import PROCESSOR
from tunefleet.core.events import Event
from tunefleet.core.home import Home
from tunefleet.core.hosts import GivenWork, HostIdentity
from tunefleet.core.layout import MachineLayout
from tunefleet.errors import StoreBusyError, TunefleetError
from tunefleet.fleet.executor import Executor, LocalExecutor, Report
from tunefleet.fleet.leases import Leases, machine_units
from tunefleet.fleet.messages import (
    Offer,
    assignment_of,
    offers_value,
    refusal_value,
    report_value,
)
from tunefleet.hardware.processor import device_identity
from tunefleet.scheduler.values import Role
from tunefleet.stages.place import Workplace
from tunefleet.stages.runner import StageRunner
from tunefleet.store import Store, open_store
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import WorkerPool

#: Seconds between two looks for work, and between two heartbeats.
_LOOK_S, _BEAT_S = 0.1, 1.0


class Host:
    """Takes what is given to a host in a store, and has executors of this process run it.

    `run` joins under a name and returns once `ended` is set, or when the store says so; what runs
    then is given up. It shows no heartbeat while an executor does not respond. `report` belongs to
    the executors, whatever their threads.
    """

    def __init__(self, store: Store, name: str, ended: threading.Event) -> None:
        self.identity = HostIdentity(name, uuid.uuid4().hex)
        self._store = store
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._ended = ended
        self._unsent: list[Report] = []
        self._runs: dict[int, Executor] = {}
        self._next_beat = 0.0

    def report(self, report: Report) -> None:
        self._reports.put(report)

    def run(self, executors: Mapping[str, Executor]) -> None:
        """Offer resources by the names that they have here. Raises LeaseLostError where another
        process has joined under the name."""
        offers = [
            Offer(name, executor.resource.role, executor.resource.kind)
            for name, executor in executors.items()
        ]
        dispatch = self._store.dispatch
        dispatch.join(self.identity, offers_value(offers))
        try:
            while not self._ended.wait(_LOOK_S):
                try:
                    self._look(executors)
                except StoreBusyError:
                    continue  # until it is free
        finally:
            for executor in executors.values():
                executor.close()
            dispatch.leave(self.identity)

    def _look(self, executors: Mapping[str, Executor]) -> None:
        self._send_reports()
        if time.monotonic() >= self._next_beat:
            responsive = [executor.responsive() for executor in executors.values()]
            if all(responsive) and not self._store.dispatch.beat(self.identity):
                self._ended.set()
            self._next_beat = time.monotonic() + _BEAT_S
        for given in self._store.dispatch.given(self.identity):
            running = self._runs.get(given.number)
            if running is None:
                self._begin(given, executors)
            elif given.abandoned:
                running.abandon(given.number)

    def _begin(self, given: GivenWork, executors: Mapping[str, Executor]) -> None:
        try:
            name, assignment = assignment_of(self._store, given.number, given.value)
        except StoreBusyError:
            raise
        except TunefleetError as error:
            self._store.dispatch.report(self.identity, given.number, refusal_value(error))
            return
        self._runs[given.number] = executors[name]
        executors[name].start(assignment)

    def _send_reports(self) -> None:
        """A stage runs until its report is kept."""
        while not self._reports.empty():
            self._unsent.append(self._reports.get())
        while self._unsent:
            number = self._unsent[0].assignment.lease
            value = report_value(self._unsent[0])
            self._store.dispatch.report(self.identity, number, value)
            del self._runs[number], self._unsent[0]


def run_host(
    store: str,
    blobs: str,
    name: str,
    home: Home,
    layout: MachineLayout,
    *,
    measures: bool,
    begun: Callable[[], None],
    ended: threading.Event,
) -> None:
    """Be a host with the workers of this machine until it has `ended`, or the store says so. It
    measures on this machine's processor too where it `measures`."""
    with (
        closing(open_store(store)) as opened,
        closing(Leases(opened.coordination)) as leases,
        Machine(layout) as machine,
    ):
        home.root.mkdir(parents=True, exist_ok=True)
        host = Host(opened, name, ended)
        runner = StageRunner(Workplace(opened, machine, home, blobs=blobs))
        folders = [machine.scratch, home.root]

        def executor(offer: Offer, units: Iterable[str], *pools: WorkerPool) -> Executor:
            for pool in pools:
                pool.warm_up()
            resource = replace(offer.resource_of(name), units=machine_units(units))
            return LocalExecutor(
                resource, pools, runner, opened, leases, host.report, _unwatched, folders
            )

        building = Offer("host", Role.HOST, toolchain_identity().host)
        executors = {
            building.name: executor(building, layout.host_units, machine.lead, machine.host)
        }
        if measures:
            kind = device_identity(cores=layout.device_cores).hardware
            measuring = Offer(PROCESSOR, Role.DEVICE, kind)
            executors[measuring.name] = executor(measuring, layout.device_units, machine.device)
        begun()
        host.run(executors)


def _unwatched(job_id: str, event: Event) -> None:
    """Who watches a job is not here."""
