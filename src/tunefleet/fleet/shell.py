"""The live shell: drives the scheduler with real time, real workers and the store."""

from __future__ import annotations

import heapq
import math
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import (
    Event,
    JobContinued,
    JobHeld,
    ResourceBack,
    ResourceQuarantined,
    StageProgressed,
)
from tunefleet.core.stage import ProfileResult, StageKey, StageRun
from tunefleet.core.step import StepRun
from tunefleet.errors import judged
from tunefleet.fleet.clock import now
from tunefleet.fleet.executor import Assignment, Executor, Report
from tunefleet.fleet.live import Ending, Live
from tunefleet.scheduler import values
from tunefleet.scheduler.core import Scheduler

#: Seconds between two looks at the heartbeats.
_BEAT_S = 1.0
#: Seconds without a sign of life after which a stage is given to someone else. Below the time
#: limits of builds and measurements, which would blame the candidate.
LEASE_S = 10.0
#: Seconds for which jobs wait where none of their devices can be used.
AWAY_S = 600.0


@runtime_checkable
class Supply(Protocol):
    """What a shell submits by and by; called by its thread alone, at every beat."""

    def take(self) -> Live | None:
        """What is next, where there is anything now."""

    @property
    def is_open(self) -> bool:
        """Whether more may come."""

    @property
    def is_stopped(self) -> bool:
        """Whether the shell is to end as soon as nothing runs, whatever is left to do."""


class Given:
    """A `Supply` of what there is from the start."""

    is_open = is_stopped = False

    def __init__(self, lives: Iterator[Live]) -> None:
        self._lives = lives

    def take(self) -> Live | None:
        return next(self._lives, None)


def _nothing_needed(shell: Shell, request: values.JobRequest) -> Iterable[Executor]:
    return ()


def _none_joins(shell: Shell) -> Iterable[Executor]:
    return ()


class Shell:
    """Carries out what the scheduler says, and tells it what happened.

    One thread calls `run`; `submit` and `report` may be called from any. `run` returns when nothing
    is left. `requested` says what users of other processes want of a job, asked at every beat.
    `needed` gives the resources that have to join before a job can run; a job ends with the error
    that it raises. `joining` gives those that have come by themselves, asked at every beat too.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        lease_s: float,
        requested: Callable[[str], ControlRequest],
        needed: Callable[[Shell, values.JobRequest], Iterable[Executor]] = _nothing_needed,
        joining: Callable[[Shell], Iterable[Executor]] = _none_joins,
    ) -> None:
        self._scheduler = scheduler
        self._joining = joining
        self._needed = needed
        self._lease_s = lease_s
        self._requested = requested
        self._inbox: queue.SimpleQueue[Report | Live | None] = queue.SimpleQueue()
        self._executors: dict[str, Executor] = {}
        self._live: dict[str, Live] = {}
        self._assigned: dict[int, tuple[Assignment, str]] = {}
        self._heard: dict[int, float] = {}
        self._timers: list[tuple[float, str]] = []
        self._endings: dict[str, Ending] = {}
        self._errors: dict[str, Exception] = {}
        self._paused: set[str] = set()
        self._next_look = 0.0
        self._winding_down = False
        #: Since when devices cannot be used.
        self._away: dict[str, float] = {}

    # Callable from any thread

    def submit(self, live: Live) -> None:
        self._inbox.put(live)

    def report(self, report: Report) -> None:
        self._inbox.put(report)

    def wake(self) -> None:
        """Ask the supply at once, not at the next beat. From signal handlers too."""
        self._inbox.put(None)

    def progressed(self, key: StageKey, done: int, total: int) -> None:
        """Tell a job's observer how far a stage is."""
        self.tell(key.job_id, StageProgressed(key, done, total))

    def tell(self, job_id: str, event: Event) -> None:
        """Tell a job's observer something."""
        live = self._live.get(job_id)  # which may end meanwhile
        if live is not None:
            live.tell(event)

    # The thread of the shell

    def join(self, executor: Executor) -> None:
        """Add a resource."""
        self._executors[executor.resource.resource_id] = executor
        self._handle(values.ResourceJoined(now(), executor.resource))

    def run(
        self, waiting: Iterable[Live] | Supply = (), at_once: float = math.inf
    ) -> dict[str, Ending]:
        """Run until all that was submitted has ended, and what that brought; returns how.

        What is `waiting` is submitted while fewer than `at_once` are there.
        """
        supply = waiting if isinstance(waiting, Supply) else Given(iter(waiting))
        try:
            while True:
                for executor in self._joining(self):
                    self.join(executor)
                while len(self._live) < at_once and self._inbox.empty():
                    live = supply.take()
                    if live is None:
                        break
                    self._submitted(live)
                if supply.is_stopped:
                    self._wind_down()
                    if not self._assigned:
                        break
                if not (self._take(supply.is_open) or self._live or supply.is_open):
                    break
                self._look_after()
        finally:
            for executor in self._executors.values():
                executor.close()
        return self._endings

    def _take(self, waits: bool = False) -> bool:
        """Wait for what happens next, a beat at most; False when that was nothing."""
        try:
            item = self._inbox.get(timeout=_BEAT_S if self._live or waits else 0)
        except queue.Empty:
            return False
        if isinstance(item, Report):
            self._reported(item)
        elif item is not None:
            self._submitted(item)
        return True

    def _submitted(self, live: Live) -> None:
        request = live.request
        self._live[request.job_id] = live
        live.submitted()
        try:
            for executor in self._needed(self, request):
                self.join(executor)
        except Exception as raised:
            error = self._errors[request.job_id] = judged(raised)
            self._finished(values.FinishJob(request.job_id, values.JobEnd.FAILED, str(error)))
        else:
            self._handle(values.JobSubmitted(now(), request))

    def _reported(self, report: Report) -> None:
        assignment, run, error = report.assignment, report.run, report.error
        key = assignment.key
        _, resource_id = self._assigned.pop(assignment.lease)
        self._heard.pop(assignment.lease, None)
        live = self._live.get(key.job_id)
        if live is not None:
            live.finished(report, now())
        end, cause = report.end, "" if error is None else str(error) or type(error).__name__
        if end is values.End.AWAY:
            self._away.setdefault(resource_id, now() - report.seconds)
            if not self._any_device(self._executors[resource_id].resource):
                end = values.End.ABANDONED
        elif end is not values.End.ABANDONED:
            self._away.pop(resource_id, None)
        if error is not None and end is not values.End.AWAY:
            # Trying again would not help: it is the job's fault, or ours.
            end = values.End.ABANDONED
            self._errors.setdefault(key.job_id, error)
            self._handle(values.JobCancelled(now(), key.job_id, cause))
        ended = self._handle(
            values.StageFinished(
                at=now(),
                key=key,
                lease=assignment.lease,
                end=end,
                seconds=report.seconds if run is None else run.seconds,
                result=None if run is None else run.result,
                drift=0.0 if run is None else _drift(run),
                cause=cause if report.lost is None else str(report.lost),
                lost=None if report.lost is None else report.lost.kind,
            ),
            finish=False,
        )
        if live is not None:  # before it ends, which is the last that it is told
            live.reported(report, now(), cause)
        self._finish(ended)
        self._next_look = 0.0  # what its user wants by now counts before the next one has begun

    def _any_device(self, like: values.Resource) -> bool:
        """Whether a resource of the same kind can be used, or may come back in the time that jobs
        wait for one."""
        pool = like.role, like.kind
        alike = [
            name
            for name, executor in self._executors.items()
            if (executor.resource.role, executor.resource.kind) == pool
        ]
        return any(now() - self._away.get(name, now()) < AWAY_S for name in alike)

    def _look_after(self) -> None:
        """Control requests, timers and heartbeats."""
        if now() >= self._next_look and not self._winding_down:
            self._next_look = now() + _BEAT_S
            for job_id, live in list(self._live.items()):
                self._heed(job_id, self._requested(live.obeys))
        while self._timers and self._timers[0][0] <= now():
            _, timer = heapq.heappop(self._timers)
            self._handle(values.TimerFired(now(), timer))
            self._tell_all(ResourceBack(timer))
        responsive = {r: e.responsive() for r, e in self._executors.items() if self._heard}
        for lease, heard in list(self._heard.items()):
            if responsive[self._assigned[lease][1]]:
                self._heard[lease] = now()
            elif now() - heard > self._lease_s:
                del self._heard[lease]
                self._handle(values.LeaseExpired(now(), lease))

    def _heed(self, job_id: str, request: ControlRequest) -> None:
        """Do what a user wants of a job."""
        if request is ControlRequest.CANCEL:
            self._handle(values.JobCancelled(now(), job_id))
        elif request is ControlRequest.PAUSE and job_id not in self._paused:
            self._paused.add(job_id)
            self.tell(job_id, JobHeld("by its user", by_user=True))
            self._handle(values.JobPaused(now(), job_id))
        elif request is ControlRequest.RUN and job_id in self._paused:
            self._paused.discard(job_id)
            self.tell(job_id, JobContinued())
            self._handle(values.JobResumed(now(), job_id))

    def _handle(self, event: values.Event, *, finish: bool = True) -> list[values.FinishJob]:
        """Tell the scheduler, and do what it says; what has ended is returned without `finish`."""
        ended = []
        for instruction in self._scheduler.handle(event):
            match instruction:
                case values.StartStage():
                    self._start(instruction)
                case values.AbandonStage(_, resource_id, lease, _):
                    self._executors[resource_id].abandon(lease)
                case values.FinishJob():
                    ended.append(instruction)
                case values.GiveUpLane(job_id, task_id, reason):
                    self._live[job_id].gave_up(task_id, reason)
                case values.SetTimer(timer, at):
                    heapq.heappush(self._timers, (at, timer))
                case values.QuarantineResource(resource_id, reason, until):
                    self._tell_all(ResourceQuarantined(resource_id, reason, until - now()))
        if finish:
            self._finish(ended)
        return ended

    def _finish(self, ended: Sequence[values.FinishJob]) -> None:
        for finished in ended:
            self._finished(finished)

    def _start(self, start: values.StartStage) -> None:
        live = self._live[start.key.job_id]
        assignment = live.assignment(start, now())
        self._assigned[start.lease] = (assignment, start.resource_id)
        self._heard[start.lease] = now()
        live.started(start)
        self._executors[start.resource_id].start(assignment)

    def _finished(self, finished: values.FinishJob) -> None:
        job_id = finished.job_id
        error = self._errors.pop(job_id, None)
        end = values.JobEnd.FAILED if error is not None else finished.end
        self._endings[job_id] = Ending(end, finished.reason, error)
        self._paused.discard(job_id)
        for live in self._live.pop(job_id).ended(self._endings[job_id]):
            self.submit(live)

    def _wind_down(self) -> None:
        """Nothing more starts, whatever users want of jobs."""
        if not self._winding_down:
            self._winding_down = True
            for job_id in self._live:
                self._handle(values.JobPaused(now(), job_id, "the shell is to end"))

    def _tell_all(self, event: Event) -> None:
        for live in self._live.values():
            live.tell(event)


def _drift(run: StageRun | StepRun) -> float:
    """How far the device's reference kernel moved over a profile stage."""
    return run.result.drift if isinstance(run.result, ProfileResult) else 0.0
