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

from tunefleet.core.events import Event
from tunefleet.core.stage import StageKey, StageRun
from tunefleet.core.step import StepRun
from tunefleet.errors import DeviceError, RetryElsewhereError, StoreBusyError, internal
from tunefleet.scheduler.values import End, Resource
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
    place of what was.
    """

    key: StageKey
    lease: int
    attempt: int
    lane: JobTask | None = None
    batch: int = 0
    elapsed_s: float = 0.0
    step: StepRequest | None = None
    again: bool = False


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

    A stage waits while a disk of `folders` is full; `tell` tells its job's observer so.
    """

    def __init__(
        self,
        resource: Resource,
        pools: Sequence[WorkerPool],
        runner: StageRunner,
        store: Store,
        report: Callable[[Report], None],
        tell: Callable[[str, Event], None],
        folders: Sequence[Path] = (),
    ) -> None:
        self.resource = resource
        self._tell = tell
        self._folders = folders
        self._pools = pools
        self._runner = runner
        self._store = store
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

        if assignment.step is not None:
            return self._run_step(assignment, assignment.step, with_room, goes_on)
        assert assignment.lane is not None
        lane, key, again = assignment.lane, assignment.key, assignment.again
        made = with_room(lambda: self._runner.run(lane, key, assignment.batch))
        goes_on()
        run = replace(made, resource_id=self.resource.resource_id, attempt=assignment.attempt)
        elapsed_s = assignment.elapsed_s + run.seconds
        if with_room(lambda: self._store.commit(run, elapsed_s=elapsed_s, again=again)):
            return run
        committed = self._store.stage(run.key)
        assert committed is not None
        return committed

    def _run_step(
        self,
        assignment: Assignment,
        request: StepRequest,
        with_room: Callable[[Callable[[], Any]], Any],
        goes_on: Callable[[], None],
    ) -> StepRun:
        committed = self._store.step(request.key)
        if committed is not None and not assignment.again:
            return committed  # by another job of the same preparation
        made: StepRun = with_room(lambda: self._runner.run_step(request))
        goes_on()
        run = replace(made, resource_id=self.resource.resource_id, attempt=assignment.attempt)
        if with_room(lambda: self._store.commit_step(run, again=assignment.again)):
            return run
        first = self._store.step(request.key)
        assert first is not None
        return first
