"""Where stages run: the seam between the live shell and a resource."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Protocol, TypeVar

from tunefleet.core.coordination import Claim, Lease
from tunefleet.core.events import Event
from tunefleet.core.phases import PHASE_OF
from tunefleet.core.stage import StageKey, StageRun, WorkKind
from tunefleet.core.step import StepKind, StepRun
from tunefleet.errors import (
    DeviceError,
    LeaseLostError,
    RetryElsewhereError,
    StoreBusyError,
    internal,
)
from tunefleet.fleet.leases import Leases
from tunefleet.scheduler.values import End, Resource, Role
from tunefleet.stages.place import JobTask, LostInputError, StepRequest
from tunefleet.stages.runner import StageRunner
from tunefleet.store import Store
from tunefleet.workers.pool import CallScope, WorkerPool
from tunefleet.workers.space import with_space

#: Seconds that `close` waits for what runs and cannot be stopped.
_PATIENCE_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Assignment:
    """What to run under a lease: a stage of `lane`, or a `step`.

    `batch` is for select; `elapsed_s` is the job's age now. `again`: it is committed, and takes the
    place of what was. `job_lease` is that of its job where another process has it.
    """

    key: StageKey
    lease: int
    attempt: int
    lane: JobTask | None = None
    batch: int = 0
    elapsed_s: float = 0.0
    step: StepRequest | None = None
    again: bool = False
    job_lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """How an assignment ended. `run` is what was committed; `error` fails the job, unless it is
    that of a device which is away; `lost` is what has to be done again before."""

    assignment: Assignment
    end: End
    seconds: float = 0.0
    run: StageRun | StepRun | None = None
    error: Exception | None = None
    lost: LostInputError | None = None


class Executor(Protocol):
    """Runs the stages that the scheduler gives to one resource.

    **Threads.** The verbs belong to the shell's thread and return at once; reports come from
    threads of the executor's own.
    **Idempotence.** Each `start` is answered by one report, also after `abandon`, and not before
    nothing of the stage uses the resource any more. A stage is committed before it is reported.
    """

    resource: Resource

    def start(self, assignment: Assignment) -> None:
        """Begin a stage."""

    def abandon(self, lease: int) -> None:
        """Give a stage up; its report says ABANDONED unless it was done already."""

    def responsive(self) -> bool:
        """The heartbeat: whether everything that runs here shows signs of life. Raises
        InternalError where something has ended and will not be reported."""

    def close(self) -> None:
        """Abandon what runs; returns when it has ended, or cannot be waited for."""


class _AttemptThread(Thread):
    """Keeps an error that was not reported, for which the shell would wait forever."""

    error: Exception | None = None

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.error = error


class LocalExecutor:
    """A resource of this machine: one thread per running stage, which works in `pools`.

    A stage waits while another process has a unit of the resource, or while a disk of `folders` is
    full; `tell` tells its job's observer so. Hosts of several processes work at once, on the same
    cores too: only what is measured needs to be alone. `beside` gives the additional units
    that a stage of a kind shares with other such stages.
    """

    def __init__(
        self,
        resource: Resource,
        pools: Sequence[WorkerPool],
        runner: StageRunner,
        store: Store,
        leases: Leases,
        report: Callable[[Report], None],
        tell: Callable[[str, Event], None],
        folders: Sequence[Path] = (),
        beside: Callable[[WorkKind], frozenset[str]] = lambda kind: frozenset(),
    ) -> None:
        self.resource = resource
        self._tell = tell
        self._folders = folders
        self._beside = beside
        self._pools = pools
        self._runner = runner
        self._store = store
        self._leases = leases
        #: Seconds that the last stage of each kind took, for those who wait.
        self._last_s: dict[WorkKind, float] = {}
        self._report = report
        self._running: dict[int, tuple[_AttemptThread, CallScope]] = {}

    def start(self, assignment: Assignment) -> None:
        scope = CallScope()
        thread = _AttemptThread(
            target=self._work,
            args=(assignment, scope),
            name=f"tunefleet-{self.resource.resource_id}",
            daemon=True,
        )
        self._running[assignment.lease] = (thread, scope)
        thread.start()

    def abandon(self, lease: int) -> None:
        running = self._running.get(lease)  # which may end meanwhile
        if running is not None:
            running[1].cancel()

    def responsive(self) -> bool:
        for thread, _ in list(self._running.values()):
            if thread.error is not None:
                raise internal(thread.error)
        return not any(pool.stopped() for pool in self._pools)

    def close(self) -> None:
        running = list(self._running.values())
        for _, scope in running:
            scope.cancel()
        for thread, _ in running:
            thread.join(_PATIENCE_S)

    def _work(self, assignment: Assignment, scope: CallScope) -> None:
        try:
            report = self._attempt(assignment, scope)
        except Exception as error:
            report = Report(assignment, End.FAILED, error=error)
        self._report(report)
        del self._running[assignment.lease]

    def _attempt(self, assignment: Assignment, scope: CallScope) -> Report:
        clock = time.perf_counter()
        try:
            with scope:
                run = self._run(assignment, scope)
            return Report(assignment, End.DONE, time.perf_counter() - clock, run)
        except CancelledError:
            # What was begun may still run in a worker, and would disturb whatever comes next.
            for pool in self._pools:
                pool.restart()
            return Report(assignment, End.ABANDONED)
        except LostInputError as error:
            return Report(assignment, End.LOST, time.perf_counter() - clock, lost=error)
        except StoreBusyError:
            raise
        except LeaseLostError as error:
            self._leases.check_job(fingerprint_of(assignment))
            return Report(assignment, End.AWAY, time.perf_counter() - clock, error=error)
        except (RetryElsewhereError, DeviceError) as error:
            return Report(assignment, End.AWAY, time.perf_counter() - clock, error=error)

    def _run(self, assignment: Assignment, scope: CallScope) -> StageRun | StepRun:
        """Run a stage or step and commit it; another attempt may have committed it meanwhile."""

        def goes_on() -> None:
            if scope.cancelled:
                raise CancelledError

        tell = partial(self._tell, assignment.key.job_id)

        def with_room(work: Callable[[], T]) -> T:
            return with_space(work, self._folders, tell, goes_on)

        claims, leases = self._claims(assignment), self._of_job(assignment)
        try:
            for claim in claims:
                acquired = partial(self._leases.acquire, claim, tell, goes_on)
                leases.append(with_room(acquired))
            clock = time.perf_counter()
            run = self._run_under(leases, assignment, with_room, goes_on)
            self._last_s[assignment.key.kind] = time.perf_counter() - clock
            return run
        finally:
            for claim in claims:
                self._leases.release(claim)

    def _claims(self, assignment: Assignment) -> list[Claim]:
        """The claims of a stage or step: on the units of the resource, then on additional ones."""
        kind, job_id = assignment.key.kind, assignment.key.job_id
        if assignment.lane is not None:
            purpose = f"{kind} of {assignment.lane.task.name}"
        else:
            purpose = PHASE_OF[StepKind(kind)]
        shared = self.resource.role is Role.HOST or self.resource.shareable
        claim = partial(
            self._leases.claim, job_id=job_id, purpose=purpose, expected_s=self._last_s.get(kind)
        )
        beside = self._beside(kind)
        own = claim(self.resource.units, shared=shared)
        return [own, claim(beside, shared=True)] if beside else [own]

    def _of_job(self, assignment: Assignment) -> list[Lease]:
        lease = assignment.job_lease or self._leases.of_job(fingerprint_of(assignment))
        return [] if lease is None else [lease]

    def _run_under(
        self,
        leases: Sequence[Lease],
        assignment: Assignment,
        with_room: Callable[[Callable[[], Any]], Any],
        goes_on: Callable[[], None],
    ) -> StageRun | StepRun:
        if assignment.step is not None:
            return self._run_step(leases, assignment, assignment.step, with_room, goes_on)
        assert assignment.lane is not None
        lane, key, again = assignment.lane, assignment.key, assignment.again
        made: StageRun = with_room(lambda: self._runner.run(lane, key, assignment.batch))
        goes_on()
        run = replace(made, resource_id=self.resource.resource_id, attempt=assignment.attempt)
        elapsed_s = assignment.elapsed_s + run.seconds
        if with_room(
            lambda: self._store.work.commit(run, elapsed_s=elapsed_s, again=again, leases=leases)
        ):
            return run
        committed = self._store.work.stage(run.key)
        assert committed is not None
        return committed

    def _run_step(
        self,
        leases: Sequence[Lease],
        assignment: Assignment,
        request: StepRequest,
        with_room: Callable[[Callable[[], Any]], Any],
        goes_on: Callable[[], None],
    ) -> StepRun:
        committed = self._store.work.step(request.key)
        if committed is not None and not assignment.again:
            return committed  # by another job of the same preparation
        made: StepRun = with_room(lambda: self._runner.run_step(request))
        goes_on()
        run = replace(made, resource_id=self.resource.resource_id, attempt=assignment.attempt)
        again = assignment.again
        if with_room(lambda: self._store.work.commit_step(run, again=again, leases=leases)):
            return run
        first = self._store.work.step(request.key)
        assert first is not None
        return first


def fingerprint_of(assignment: Assignment) -> str:
    """Of the job that a stage or step is done for; "" where that is no job of its own."""
    if assignment.lane is not None:
        return assignment.lane.job.spec.fingerprint
    delivery = assignment.step.delivery if assignment.step is not None else None
    return delivery.job.spec.fingerprint if delivery is not None and delivery.job else ""
