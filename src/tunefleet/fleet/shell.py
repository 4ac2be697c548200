"""The live shell: drives the scheduler with real time, real workers and the store."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass

from tunefleet.core.events import (
    JobContinued,
    JobHeld,
    LaneUpdated,
    Note,
    Observer,
    PhaseStarted,
    ResourceBack,
    ResourceQuarantined,
    StageAbandoned,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.job import Job
from tunefleet.core.stage import ProfileResult, StageKey, StageRun
from tunefleet.core.task import Task
from tunefleet.fleet.controls import Wish
from tunefleet.fleet.executor import Assignment, Executor, Report
from tunefleet.fleet.stages import Lane
from tunefleet.scheduler import values
from tunefleet.scheduler.core import Scheduler
from tunefleet.scheduler.tuning_plan import LaneProgress, TuningPlan

#: Seconds between two looks at the heartbeats.
_BEAT_S = 1.0
#: Seconds without a sign of life after which a stage is given to someone else. Below the time
#: limits of builds and measurements, which would blame the candidate.
LEASE_S = 10.0


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job with its plan and whoever watches it."""

    job: Job
    plan: TuningPlan
    tasks: dict[str, Task]
    observer: Observer
    request: values.JobRequest


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job's search ended; `error` is what failed it."""

    end: values.JobEnd
    reason: str
    error: Exception | None = None


Finisher = Callable[[str, Ending], None]


class Shell:
    """Carries out what the scheduler says, and tells it what happened.

    One thread calls `run`; `submit` and `report` may be called from any. `run` returns when no job
    is left. Jobs whose search has ended are handed to its `finish` one by one while nothing else
    runs, since that measures whole networks on all cores. `wish` says what users of other
    processes want of a job; it is asked at every beat.
    """

    def __init__(self, scheduler: Scheduler, lease_s: float, wish: Callable[[str], Wish]) -> None:
        self._scheduler = scheduler
        self._lease_s = lease_s
        self._wish = wish
        self._inbox: queue.SimpleQueue[Report | LiveJob] = queue.SimpleQueue()
        self._executors: dict[str, Executor] = {}
        self._jobs: dict[str, LiveJob] = {}
        self._assigned: dict[int, tuple[Assignment, str]] = {}
        self._heard: dict[int, float] = {}
        self._timers: list[tuple[float, str]] = []
        self._ended: list[tuple[str, Ending]] = []
        self._errors: dict[str, Exception] = {}
        self._paused: set[str] = set()
        self._held: set[str] = set()
        self._next_look = 0.0

    # Callable from any thread

    def submit(self, job: LiveJob) -> None:
        self._inbox.put(job)

    def report(self, report: Report) -> None:
        self._inbox.put(report)

    def progressed(self, key: StageKey, done: int, total: int) -> None:
        """Tell a job's observer how far a stage is."""
        job = self._jobs.get(key.job_id)
        if job is not None:
            job.observer(StageProgressed(key, done, total))

    # The thread of the shell

    def join(self, executor: Executor) -> None:
        """Add a resource."""
        self._executors[executor.resource.resource_id] = executor
        self._handle(values.ResourceJoined(now(), executor.resource))

    def run(self, finish: Finisher = lambda job_id, ending: None) -> dict[str, Ending]:
        """Run until every submitted job has ended; returns how each did."""
        endings: dict[str, Ending] = {}
        try:
            while self._take() or self._jobs or self._ended:
                self._look_after()
                if not self._ended:
                    continue
                self._hold()
                if not self._assigned:
                    for job_id, ending in self._ended:
                        finish(job_id, ending)
                        endings[job_id] = ending
                    self._ended.clear()
                    self._release()
        finally:
            for executor in self._executors.values():
                executor.close()
        return endings

    def _take(self) -> bool:
        """Wait for what happens next, a beat at most; False when that was nothing."""
        try:
            item = self._inbox.get(timeout=_BEAT_S if self._jobs else 0)
        except queue.Empty:
            return False
        if isinstance(item, LiveJob):
            self._submitted(item)
        else:
            self._reported(item)
        return True

    def _submitted(self, live: LiveJob) -> None:
        self._jobs[live.job.job_id] = live
        live.observer(PhaseStarted("tune"))
        for lane in live.plan.progress.values():
            live.observer(_lane_event(lane))
        self._handle(values.JobSubmitted(now(), live.request))
        if self._ended:
            self._hold()

    def _reported(self, report: Report) -> None:
        assignment, run = report.assignment, report.run
        del self._assigned[assignment.lease]
        self._heard.pop(assignment.lease, None)
        live = self._jobs.get(assignment.key.job_id)
        end, cause, seconds, drift, result = report.end, "", 0.0, 0.0, None
        if run is not None:
            seconds, result, drift = run.seconds, run.result, _drift(run)
        if report.error is not None:
            # Trying again would not help: it is the job's fault, or ours.
            end, cause = values.End.ABANDONED, str(report.error)
            self._errors.setdefault(assignment.key.job_id, report.error)
            self._handle(values.JobCancelled(now(), assignment.key.job_id, cause))
        self._handle(
            values.StageFinished(
                now(), assignment.key, assignment.lease, end, seconds, result, drift, cause
            )
        )
        if live is None:
            return
        if run is None or end is not values.End.DONE:
            live.observer(StageAbandoned(assignment.key, cause or "given up"))
            return
        live.observer(StageFinished(run, live.plan.trials, live.plan.elapsed_s(now())))
        live.observer(_lane_event(live.plan.progress[assignment.key.task_id]))

    def _look_after(self) -> None:
        """Wishes, timers and heartbeats."""
        if now() >= self._next_look:
            self._next_look = now() + _BEAT_S
            for job_id in list(self._jobs):
                self._heed(job_id, self._wish(job_id))
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

    def _heed(self, job_id: str, wish: Wish) -> None:
        """Do what a user wants of a job; one held for another's sake stays held."""
        if wish is Wish.CANCEL:
            self._handle(values.JobCancelled(now(), job_id))
        elif wish is Wish.PAUSE and job_id not in self._paused:
            self._paused.add(job_id)
            self._tell(job_id, JobHeld("paused by its user"))
            self._handle(values.JobPaused(now(), job_id))
        elif wish is Wish.RUN and job_id in self._paused:
            self._paused.discard(job_id)
            self._tell(job_id, JobContinued())
            if job_id not in self._held:
                self._handle(values.JobResumed(now(), job_id))

    def _hold(self) -> None:
        for job_id in self._jobs.keys() - self._held - self._paused:
            self._held.add(job_id)
            self._handle(values.JobPaused(now(), job_id, "another network is being finished"))

    def _release(self) -> None:
        for job_id in sorted(self._held):
            if job_id not in self._paused:
                self._handle(values.JobResumed(now(), job_id, "the other network is finished"))
        self._held.clear()

    def _handle(self, event: values.Event) -> None:
        for instruction in self._scheduler.handle(event):
            match instruction:
                case values.StartStage():
                    self._start(instruction)
                case values.AbandonStage(_, resource_id, lease, _):
                    self._executors[resource_id].abandon(lease)
                case values.FinishJob():
                    self._finished(instruction)
                case values.GiveUpLane(job_id, task_id, reason):
                    name = self._jobs[job_id].tasks[task_id].name
                    self._tell(job_id, Note(f"{name} is not tuned further: {reason}", True))
                case values.SetTimer(timer, at):
                    heapq.heappush(self._timers, (at, timer))
                case values.QuarantineResource(resource_id, reason, until):
                    self._tell_all(ResourceQuarantined(resource_id, reason, until - now()))

    def _start(self, start: values.StartStage) -> None:
        key = start.key
        live = self._jobs[key.job_id]
        assignment = Assignment(
            key=key,
            lease=start.lease,
            attempt=start.attempt,
            lane=Lane(live.job, live.tasks[key.task_id]),
            batch=live.plan.batch(key.task_id),
            elapsed_s=live.plan.elapsed_s(now()),
        )
        self._assigned[start.lease] = (assignment, start.resource_id)
        self._heard[start.lease] = now()
        live.observer(StageStarted(key, start.resource_id))
        self._executors[start.resource_id].start(assignment)

    def _finished(self, finished: values.FinishJob) -> None:
        job_id = finished.job_id
        error = self._errors.pop(job_id, None)
        end = values.JobEnd.FAILED if error is not None else finished.end
        self._ended.append((job_id, Ending(end, finished.reason, error)))
        del self._jobs[job_id]
        self._held.discard(job_id)
        self._paused.discard(job_id)

    def _tell(self, job_id: str, event: JobHeld | JobContinued | Note) -> None:
        if job_id in self._jobs:
            self._jobs[job_id].observer(event)

    def _tell_all(self, event: ResourceBack | ResourceQuarantined) -> None:
        for live in self._jobs.values():
            live.observer(event)


def _lane_event(lane: LaneProgress) -> LaneUpdated:
    return LaneUpdated(
        lane.weighted, lane.trials, lane.failed, lane.best_s, lane.known_s, lane.exhausted
    )


def _drift(run: StageRun) -> float:
    """How far the device's reference kernel moved over a profile stage."""
    if isinstance(run.result, ProfileResult) and run.result.measured:
        return run.result.measured[0][1].drift
    return 0.0


def now() -> float:
    """The clock of the shell."""
    return time.monotonic()
