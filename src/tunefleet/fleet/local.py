"""The fleet of one machine: its workers, the devices that it reaches, the store, and many jobs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tunefleet.artifacts.blobs import Blobs
from tunefleet.compiler.toolchain import toolchain_identity
from tunefleet.core.device import PROCESSOR, THIS_MACHINE, DeviceSlot, RegisteredDevice
from tunefleet.core.home import Home
from tunefleet.core.job import shared_kind
from tunefleet.core.layout import MachineLayout
from tunefleet.core.stage import StageKind
from tunefleet.devices.health import check_any_there, healths_of
from tunefleet.errors import InputError, RetryElsewhereError, SetupError
from tunefleet.fleet.executor import Executor, LocalExecutor
from tunefleet.fleet.leases import Leases, device_units, machine_units, units_beside
from tunefleet.fleet.remote import RemoteHosts
from tunefleet.fleet.shell import LEASE_S, Shell
from tunefleet.hardware.processor import device_identity
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.policies import POLICIES, Sequential
from tunefleet.scheduler.values import JobRequest, Resource, Role, at_home
from tunefleet.stages.place import DeviceWorker, Workplace, objects_of
from tunefleet.stages.runner import StageRunner
from tunefleet.store import Store, open_store
from tunefleet.system.files import check_runs_code
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import WorkerPool


class LocalFleet:
    """This machine's host, and devices of any kinds. Workers start, and the store opens, when they
    are first needed: those of a kind of device with the first job that measures on it."""

    def __init__(
        self,
        layout: MachineLayout,
        home: Path,
        devices: Sequence[RegisteredDevice] = (),
        *,
        here: bool = True,
    ) -> None:
        """Of what is measured on, `add` may be told later too."""
        self._layout = layout
        self._home = Home(home)
        self._own_kind = device_identity(cores=layout.device_cores).hardware
        #: The kind of this machine's processor, where that is measured on.
        self._here = ""
        self._devices: dict[str, dict[str, RegisteredDevice]] = {}
        self._slots: dict[str, tuple[DeviceSlot, ...]] = {}
        self._senders: dict[str, WorkerPool] = {}
        self._machine: Machine | None = None
        self._store: Store | None = None
        self._leases: Leases | None = None
        self._hosts: tuple[Shell, RemoteHosts] | None = None
        self.add(devices, here=here)

    def add(self, devices: Sequence[RegisteredDevice], *, here: bool) -> None:
        """Measure on these devices too, and on this machine's processor if it is `here`: those of
        one kind take the batches of a job at the same time. One whose kind was asked for
        before does not join any more."""
        if here:
            self._here = self._own_kind
            self._devices.setdefault(self._here, {})
        for device in devices:
            kind = device.description.identity.hardware
            self._devices.setdefault(kind, {})[device.name] = device

    def slots(self, kind: str) -> tuple[DeviceSlot, ...]:
        """The servers and GPUs of a kind that take batches; one that is away has one place, which
        rests. Raises RetryElsewhereError where nothing of that kind can be used now, SetupError
        where this machine could load no library from the home, InputError for another kind."""
        if kind not in self._devices:
            raise InputError("no device of this fleet is of that kind", cure="tunefleet devices")
        if kind not in self._slots:
            devices = list(self._devices[kind].values())
            specs = [device.spec for device in devices]
            ask = healths_of if kind == self._here else check_any_there
            healths = ask(specs) if specs else []
            if all(spec.is_here for spec in specs):
                check_runs_code(self._home.root, "give a --home on another disk")
                check_runs_code(
                    Path(tempfile.gettempdir()), "set TMPDIR to a folder on another disk"
                )
            self._slots[kind] = tuple(
                slot
                for device, health in zip(devices, healths, strict=True)
                for slot in device.slots(max(1, health.servers))
            )
        return self._slots[kind]

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            self._machine = Machine(self._layout)
        return self._machine

    def check(self) -> None:
        """Before anything is begun: raises as `slots` does where that holds for every kind."""
        errors = []
        for kind in self._devices:
            try:
                self.slots(kind)
            except RetryElsewhereError as error:
                errors.append(error)
        if len(errors) == len(self._devices):
            raise errors[0]

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(self._home.root)
        return self._store

    @property
    def place(self) -> Workplace:
        return Workplace(self.store, self.machine, self._home)

    def objects(self, owner: str) -> Blobs:
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
        """A shell to submit to and to run, whose resources join when a job needs them."""
        in_flight: dict[str, int] = {}
        scheduler = Scheduler(POLICIES[policy](), in_flight)
        joined: set[str] = set()
        #: Jobs whose stages share this machine's processor.
        sharing: set[str] = set()
        width = 0 if policy == Sequential.name else 2
        #: Devices of other hosts, by kind.
        elsewhere: Counter[str] = Counter()

        def needed(shell: Shell, request: JobRequest) -> Iterator[Executor]:
            kind = request.device_kind
            if kind == shared_kind(self._here):
                if request.job_id not in sharing:
                    sharing.add(request.job_id)
                    in_flight[kind] = 1  # each has one, so that all come to a stage together
                    yield self._sharing(shell, kind, len(sharing))
            elif kind not in in_flight:
                own = kind == self._here and not self._layout.time_shared
                beside = own + len(self.slots(kind)) + elsewhere[kind]
                # Enough open rounds that nobody waits for another; one where stages take turns
                # anyway, since a round decides on older results when others are open.
                in_flight[kind] = 1 + width * beside
                yield from self._measuring(shell, kind)
            if request.host_kind not in joined:
                joined.add(request.host_kind)
                yield self._building(shell, request.host_kind)

        def joining(shell: Shell) -> Iterator[Executor]:
            for executor in self._hosts_of(shell).newcomers():
                if executor.resource.role is Role.DEVICE:
                    elsewhere[executor.resource.kind] += 1
                    if executor.resource.kind in in_flight:
                        in_flight[executor.resource.kind] += width
                yield executor

        return Shell(scheduler, lease_s, self.store.coordination.wanted, needed, joining)

    def _building(self, shell: Shell, kind: str) -> Executor:
        own = toolchain_identity().host
        names = {own: "host", at_home(own): "home"}
        if kind not in names:
            raise SetupError(f"it is built with {kind}, and here is {own}", cure="tune it anew")
        host = Resource(names[kind], Role.HOST, kind, machine_units(self._layout.host_units))
        machine = self.machine
        return self._executor(shell, host, (machine.lead, machine.host))

    def _measuring(self, shell: Shell, kind: str) -> Iterator[Executor]:
        if kind == self._here:
            units = device_units(PROCESSOR, THIS_MACHINE, self._layout)
            device = Resource(PROCESSOR, Role.DEVICE, kind, units, also=at_home(kind))
            yield self._executor(shell, device, (self.machine.device,))
        for slot in self.slots(kind):
            if slot.name not in self._senders:
                self._senders[slot.name] = self.machine.sender()
            remote = DeviceWorker(self._senders[slot.name], 1, slot.spec)
            units = device_units(slot.name, slot.spec, self._layout)
            # A stage of which any kind works here; the leases know the kinds apart.
            beside = units_beside(StageKind.PROFILE, slot.spec, self._layout)
            home = at_home(kind)
            device = Resource(slot.name, Role.DEVICE, kind, units, beside=beside, also=home)
            yield self._executor(shell, device, (remote.pool,), remote)

    def _sharing(self, shell: Shell, kind: str, number: int) -> Executor:
        """An additional worker on the device's cores, for stages that run at the same time."""
        name = f"shared device {number}"
        if name not in self._senders:
            self._senders[name] = self.machine.sender()
        units = device_units(name, THIS_MACHINE, self._layout)
        worker = DeviceWorker(self._senders[name], 1)
        device = Resource(name, Role.DEVICE, kind, units, shareable=True)
        return self._executor(shell, device, (worker.pool,), worker)

    def _executor(
        self,
        shell: Shell,
        resource: Resource,
        pools: Sequence[WorkerPool],
        remote: DeviceWorker | None = None,
    ) -> Executor:
        """Its workers start now, so that loading the compiler overlaps with other work. Its stages
        wait while another process has their cores or device, and while the disk of the home, or of
        the scratch folder, is full."""
        for pool in pools:
            pool.warm_up()
        machine, store = self.machine, self.store
        place = Workplace(store, machine, self._home, shell.progressed, shell.tell, remote)
        folders = [machine.scratch, self._home.root]
        runner = StageRunner(place)
        spec = THIS_MACHINE if remote is None else remote.spec
        return LocalExecutor(
            resource,
            pools,
            runner,
            store,
            self.leases,
            shell.report,
            shell.tell,
            folders,
            lambda kind: units_beside(kind, spec, self._layout),
        )

    def _hosts_of(self, shell: Shell) -> RemoteHosts:
        if self._hosts is None or self._hosts[0] is not shell:
            self._close_hosts()
            self._hosts = shell, RemoteHosts(self.store, self.leases, shell.report)
        return self._hosts[1]

    def _close_hosts(self) -> None:
        if self._hosts is not None:
            self._hosts[1].close()
            self._hosts = None

    def close(self) -> None:
        self._close_hosts()
        if self._machine is not None:
            self._machine.close()
            self._machine = None
            self._senders.clear()
        if self._leases is not None:
            self._leases.close()
            self._leases = None
        if self._store is not None:
            self._store.close()
            self._store = None
