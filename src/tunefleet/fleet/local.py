"""The fleet of one machine: its workers and the store, and many jobs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tunefleet.artifacts.objects import Objects
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.device import THIS_MACHINE, DeviceSlot, RegisteredDevice
from tunefleet.core.home import Home
from tunefleet.core.layout import MachineLayout
from tunefleet.devices.health import check_any_there
from tunefleet.fleet.executor import LocalExecutor
from tunefleet.fleet.leases import Leases, device_units, machine_units
from tunefleet.fleet.shell import LEASE_S, Shell
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.policies import POLICIES, Sequential
from tunefleet.scheduler.values import Resource, Role
from tunefleet.stages.place import DeviceWorker, Workplace, objects_of
from tunefleet.stages.runner import StageRunner
from tunefleet.store import Store, open_store
from tunefleet.system.files import check_runs_code
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import WorkerPool


class LocalFleet:
    """Starts workers and opens the store when they are first needed."""

    def __init__(
        self,
        layout: MachineLayout,
        home: Path,
        devices: Sequence[RegisteredDevice] = (),
    ) -> None:
        """`devices`, all of one kind, are measured on instead of this machine: all servers of each
        that there are when the first work begins."""
        self._devices = tuple(devices)
        self._slots: tuple[DeviceSlot, ...] | None = None
        self._layout = layout
        self._home = Home(home)
        self._machine: Machine | None = None
        self._store: Store | None = None
        self._leases: Leases | None = None

    @property
    def slots(self) -> tuple[DeviceSlot, ...]:
        """What takes batches at the same time; none where that is this machine. A device that is
        away has one place, which rests. Raises RetryElsewhereError where all devices are away."""
        if self._slots is None:
            specs = [device.spec for device in self._devices]
            healths = check_any_there(specs) if specs else []
            self._slots = tuple(
                slot
                for device, health in zip(self._devices, healths, strict=True)
                for slot in device.slots(max(1, health.servers))
            )
        return self._slots

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            self.check()
            remotes = [slot.spec for slot in self.slots]
            self._machine = Machine(self._layout, remotes)
            self._machine.warm_up()
        return self._machine

    def check(self) -> None:
        """Before anything is begun. Raises RetryElsewhereError where all devices are away, and
        SetupError where this machine could load no library from the home."""
        if all(slot.spec.is_here for slot in self.slots):
            check_runs_code(self._home.root, "give a --home on another disk")

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(self._home.root)
        return self._store

    @property
    def place(self) -> Workplace:
        return Workplace(self.store, self.machine, self._home)

    def objects(self, owner: str) -> Objects:
        """As those of `place`; no worker starts for it."""
        return objects_of(self._home, owner)

    @property
    def home(self) -> Home:
        return self._home

    @property
    def leases(self) -> Leases:
        if self._leases is None:
            self._leases = Leases(self.store.coordination)
        return self._leases

    def shell(self, policy: str = "predictive", lease_s: float = LEASE_S) -> Shell:
        """A shell with this machine's host and the devices, to submit to and to run."""
        requested = self.store.coordination.wanted
        return shell_on(
            self.machine,
            self.store,
            self.leases,
            self._home,
            policy,
            lease_s,
            requested,
            self.slots,
        )

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
            self._machine = None
        if self._leases is not None:
            self._leases.close()
            self._leases = None
        if self._store is not None:
            self._store.close()
            self._store = None


def shell_on(
    machine: Machine,
    store: Store,
    leases: Leases,
    home: Home,
    policy: str,
    lease_s: float = LEASE_S,
    requested: Callable[[str], ControlRequest] = lambda job_id: ControlRequest.RUN,
    slots: Sequence[DeviceSlot] = (),
) -> Shell:
    """A shell with this machine's host joined, and with its device, or with `slots`, for each of
    which the machine has a worker. Stages wait while another process has their cores or device, and
    while the disk of `home`, or of the scratch folder, is full."""
    layout = machine.layout
    # Enough open rounds that nobody waits for another; one where stages take turns anyway, since a
    # round decides on older results when others are open.
    in_turn = policy == Sequential.name or (layout.time_shared and not slots)
    in_flight = 1 if in_turn else 1 + 2 * max(1, len(slots))
    shell = Shell(Scheduler(POLICIES[policy](), in_flight), lease_s, requested)
    folders = [machine.scratch, home.root]
    at = Workplace(store, machine, home, shell.progressed, shell.tell)

    def join(resource: Resource, pools: Sequence[WorkerPool], runner: StageRunner) -> None:
        executor = LocalExecutor(
            resource, pools, runner, store, leases, shell.report, shell.tell, folders
        )
        shell.join(executor)

    runner = StageRunner(at)
    host = Resource("host", Role.HOST, "host", machine_units(layout.host_units))
    join(host, (machine.lead, machine.host), runner)
    if not slots:
        units = device_units("device", THIS_MACHINE, layout)
        device = Resource("device", Role.DEVICE, "device", units)
        join(device, (machine.device,), runner)
    for slot, pool in zip(slots, machine.remotes, strict=True):
        units = device_units(slot.name, slot.spec, layout)
        device = Resource(slot.name, Role.DEVICE, "device", units)
        remote = DeviceWorker(pool, 1, slot.spec)
        join(device, (pool,), StageRunner(replace(at, remote=remote)))
    return shell
