"""What this process has leased: cores, devices and jobs that other processes leave alone."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tunefleet.core.coordination import Claim, ClaimStatus, Holder, Lease, ProcessIdentity, Queued
from tunefleet.core.device import DeviceSpec
from tunefleet.core.events import Event, JobContinued, JobHeld
from tunefleet.core.layout import MachineLayout, format_cores
from tunefleet.core.stage import StageKind, WorkKind
from tunefleet.core.step import StepKind
from tunefleet.errors import InputError, LeaseLostError, StoreBusyError, TunefleetError, internal
from tunefleet.store import Coordination, open_store, store_path
from tunefleet.system.processes import has_ended, process_space, started_at
from tunefleet.system.user import user_name

#: Seconds that a lease lives after the last sign of its holder. One whose process has ended on this
#: machine goes at once.
TTL_S = 60.0
#: Seconds between two looks of who waits: the first one, and the longest.
_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.25
#: Seconds of waiting that are told, and between two times that they are: commands that take turns
#: wait before every stage.
_TOLD_S, _TOLD_AGAIN_S = 2.0, 60.0

_CORE, _DEVICE, _JOB, _SERVER = "core", "device ", "job ", "server"


class Leases:
    """The leases of this process in one store. Any thread may call; a thread of its own renews what
    is held. `close` ends all."""

    def __init__(
        self,
        coordination: Coordination,
        ttl_s: float = TTL_S,
        process: ProcessIdentity | None = None,
    ) -> None:
        self._coordination = coordination
        self._ttl_s = ttl_s
        self._process = process or this_process()
        self._owner = user_name()
        self._lock = threading.Lock()
        self._held: dict[str, Lease] = {}
        self._told_at: dict[frozenset[str], float] = {}
        self._closed = threading.Event()
        self._renewing = False
        self._error: Exception | None = None

    def claim(
        self,
        units: Iterable[str],
        *,
        shared: bool = False,
        job_id: str = "",
        purpose: str = "",
        expected_s: float | None = None,
    ) -> Claim:
        """A claim of this process; `purpose` and `expected_s` are for those who wait for it."""
        holder = Holder(self._process, self._owner, job_id, purpose, expected_s)
        return Claim(uuid.uuid4().hex, frozenset(units), holder, shared)

    def acquire(
        self, claim: Claim, tell: Callable[[Event], None], check: Callable[[], None]
    ) -> Lease:
        """Wait until a claim is granted. `tell` is told of waiting that lasts; `check` is called
        at every look and may raise what ends it. To be released in any case."""
        began = time.monotonic()
        look_s, told = _LOOK_S, False
        while isinstance(answer := self._asked(claim), Queued):
            check()
            if not told and time.monotonic() - began > _TOLD_S and self._is_news(claim):
                tell(JobHeld(waiting_for(answer)))
                told = True
            time.sleep(look_s)
            look_s = min(2 * look_s, _LONGEST_LOOK_S)
        self._keep(answer)
        if told:
            tell(JobContinued())
        return answer

    def release(self, claim: Claim) -> None:
        """End a claim. Where the store cannot be written it ends by itself, soon."""
        with self._lock:
            self._held.pop(claim.claim_id, None)
        with suppress(TunefleetError):
            self._coordination.release(claim.claim_id)

    @contextmanager
    def held(self, claim: Claim, tell: Callable[[Event], None]) -> Iterator[Lease]:
        """Have the units of a claim within the block."""
        try:
            yield self.acquire(claim, tell, lambda: None)
        finally:
            self.release(claim)

    @contextmanager
    def job(self, fingerprint: str) -> Iterator[Lease]:
        """Have a job; raises StoreBusyError naming the process that has it, and InputError where
        this one has it."""
        with self._alone(_JOB + fingerprint, self._taken) as lease:
            yield lease

    @contextmanager
    def server(self) -> Iterator[Lease]:
        """Be the server of the store's home; raises StoreBusyError naming the process that is."""
        with self._alone(_SERVER, _served) as lease:
            yield lease

    @contextmanager
    def _alone(self, unit: str, refused: Callable[[Holder], TunefleetError]) -> Iterator[Lease]:
        claim = self.claim([unit])
        try:
            answer = self._asked(claim)
            if isinstance(answer, Queued):
                raise refused(answer.ahead[0].claim.holder)
            self._keep(answer)
            yield answer
        finally:
            self.release(claim)

    def of_job(self, fingerprint: str) -> Lease | None:
        """The lease of a job of this process."""
        with self._lock:
            units = frozenset({_JOB + fingerprint})
            return next((held for held in self._held.values() if held.claim.units == units), None)

    def check_job(self, fingerprint: str) -> None:
        """Raises StoreBusyError where another process has taken a job of this one."""
        lease = self.of_job(fingerprint)
        if lease is None:
            return
        try:
            self._coordination.renew(lease, self._ttl_s)
        except LeaseLostError as error:
            raise StoreBusyError(
                "this command was stopped for so long that another one has taken its job",
                cure="see what became of it: tunefleet jobs",
            ) from error

    def close(self) -> None:
        self._closed.set()
        for lease in list(self._held.values()):
            self.release(lease.claim)

    def _asked(self, claim: Claim) -> Lease | Queued:
        """As the store answers once those are gone whose processes have ended."""
        if self._error is not None:
            raise internal(self._error)
        answer = self._coordination.acquire(claim, self._ttl_s)
        if isinstance(answer, Lease):
            return answer
        ended = [status for status in answer.ahead if is_over(status)]
        for status in ended:
            self._coordination.release(status.claim.claim_id)
        return self._coordination.acquire(claim, self._ttl_s) if ended else answer

    def _keep(self, lease: Lease) -> None:
        with self._lock:
            self._held[lease.claim.claim_id] = lease
            if not self._renewing:
                self._renewing = True
                threading.Thread(target=self._renew, name="tunefleet-leases", daemon=True).start()

    def _renew(self) -> None:
        """Until nothing is held."""
        while not self._closed.wait(self._ttl_s / 6):
            with self._lock:
                held = list(self._held.values())
                if not held:
                    self._renewing = False
                    return
            for lease in held:
                try:
                    self._coordination.renew(lease, self._ttl_s)
                except TunefleetError:
                    # Who commits under a lost lease hears of it; a store that is busy or full is
                    # asked again.
                    continue
                except Exception as error:
                    self._error = error
                    return

    def _is_news(self, claim: Claim) -> bool:
        """Whether waiting for these units was not told a moment ago."""
        now = time.monotonic()
        with self._lock:
            if now - self._told_at.get(claim.units, -_TOLD_AGAIN_S) < _TOLD_AGAIN_S:
                return False
            self._told_at[claim.units] = now
            return True

    def _taken(self, holder: Holder) -> TunefleetError:
        if holder.process == self._process:
            return InputError(
                "this job is there twice: two of the networks are the same",
                cure="name each network once",
            )
        return _busy(holder)


@contextmanager
def measuring(
    home: Path, units: Iterable[str], purpose: str, tell: Callable[[str], None]
) -> Iterator[None]:
    """Have units for what is measured outside of jobs, once no command of the home has them; `tell`
    is told of waiting. A home that is not there has none, and is not created."""

    def heard(event: Event) -> None:
        if isinstance(event, JobHeld):
            tell(f"waiting: {event.reason}")

    if not store_path(home).is_file():
        yield
        return
    with (
        closing(open_store(home)) as store,
        closing(Leases(store.coordination)) as leases,
        leases.held(leases.claim(units, purpose=purpose), heard),
    ):
        yield


def _busy(holder: Holder) -> StoreBusyError:
    elsewhere = f" on {holder.process.host}" if holder.process.space != process_space() else ""
    return StoreBusyError(
        f"this job is being tuned by process {holder.process.pid}{elsewhere}",
        cure="wait for it, or give another --seed for a job of its own",
    )


def check_free(coordination: Coordination, fingerprint: str) -> None:
    """Raises StoreBusyError where another process works on a job."""
    own = this_process()
    for status in coordination.claims():
        holder = status.claim.holder
        taken = status.granted and _JOB + fingerprint in status.claim.units
        if taken and holder.process != own and not is_over(status):
            raise _busy(holder)


def _served(holder: Holder) -> TunefleetError:
    return StoreBusyError(
        f"process {holder.process.pid} serves this home", cure="end it: tunefleet serve --stop"
    )


def is_over(status: ClaimStatus) -> bool:
    """Whether the process of a claim has ended, as far as it can be seen from here."""
    process = status.claim.holder.process
    return process.space == process_space() and has_ended(process.pid, process.started)


def jobs_held(coordination: Coordination) -> frozenset[str]:
    """The fingerprints of the jobs that processes which live work on."""
    return frozenset(
        unit.removeprefix(_JOB)
        for status in coordination.claims()
        if status.granted and not is_over(status)
        for unit in status.claim.units
        if unit.startswith(_JOB)
    )


def machine_units(units: Iterable[str]) -> frozenset[str]:
    """The units of this machine under names that others do not have."""
    return frozenset(f"{socket.gethostname()}/{unit}" for unit in units)


def device_units(name: str, spec: DeviceSpec, layout: MachineLayout) -> frozenset[str]:
    """The units of a device that is known by a name, or of this machine's processor."""
    if not spec.is_here:
        return frozenset({_DEVICE + name})
    return machine_units(layout.device_units if spec.gpu is None else {f"gpu {spec.gpu}"})


def units_beside(kind: WorkKind, spec: DeviceSpec, layout: MachineLayout) -> frozenset[str]:
    """The units of this machine that a stage or step on another device than its processor uses as
    well: while it runs, nothing can be measured on them.

    A GPU's worker launches from the device's cores all the time. What a server runs, its sender
    waits for; only the check step runs the source framework on these cores.
    """
    works_here = spec.gpu is not None if spec.is_here else kind is StepKind.CHECK
    return machine_units(layout.device_units) if works_here else frozenset()


def units_alone(name: str, spec: DeviceSpec, layout: MachineLayout) -> frozenset[str]:
    """What a measurement outside of jobs has alone: a device, and the cores that launch for it."""
    return device_units(name, spec, layout) | units_beside(StageKind.PROFILE, spec, layout)


def this_process() -> ProcessIdentity:
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), process_space(), pid, started_at(pid))


def waiting_for(queued: Queued) -> str:
    """Who is ahead, for the user to read."""
    first = queued.ahead[0]
    holder = first.claim.holder
    job = f"job {holder.job_id[:8]} of {holder.owner}" if holder.job_id else holder.owner
    purpose = f" ({holder.purpose})" if holder.purpose else ""
    text = f"{named_units(first.claim.units)} used by {job}{purpose}"
    remaining = [_remaining_s(status) for status in queued.ahead]
    if all(seconds is not None for seconds in remaining):
        text += f", for about {max(1.0, sum(s for s in remaining if s is not None)):.0f} s"
    others = len(queued.ahead) - 1
    return text + (f"; {others} more before this one" if others else "")


def _remaining_s(status: ClaimStatus) -> float | None:
    expected_s = status.claim.holder.expected_s
    if expected_s is None or not status.granted:
        return expected_s
    return max(0.0, expected_s - status.seconds)


def named_units(units: frozenset[str]) -> str:
    """Units with their verb: `cores 0-1 are`, `device board-1 is`."""
    names = sorted(unit.rpartition("/")[2] for unit in units)
    cores = [name.removeprefix(_CORE) for name in names]
    if all(core.isdigit() for core in cores):
        of = format_cores([int(core) for core in cores])
        return f"core {of} is" if len(cores) == 1 else f"cores {of} are"
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
