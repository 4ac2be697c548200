"""The scheduler: a pure state machine, events in, instructions out.

It reads no clock, does no I/O and starts nothing. Every event carries its time, and the shell that
drives the scheduler (the live one, or the simulator) carries out the instructions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tunefleet.core.settings import MAX_DRIFT
from tunefleet.core.stage import StageKey, WorkKind
from tunefleet.errors import InternalError
from tunefleet.scheduler.estimates import Estimates
from tunefleet.scheduler.lanes import JobRecord, Lane, Pool, Stage
from tunefleet.scheduler.policies import Policy
from tunefleet.scheduler.resources import AWAY_S, Held, Resources, complaint_s, quarantine_s
from tunefleet.scheduler.transitions import StageState, Transition
from tunefleet.scheduler.values import (
    AbandonStage,
    End,
    Event,
    FinishJob,
    GiveUpLane,
    Instruction,
    JobCancelled,
    JobEnd,
    JobPaused,
    JobRequest,
    JobResumed,
    JobSubmitted,
    LeaseExpired,
    QuarantineResource,
    ResourceJoined,
    ResourceLost,
    SetTimer,
    StageFinished,
    StartStage,
    TimerFired,
)

#: Failed attempts after which a stage is poison.
ATTEMPTS = 3


class Scheduler:
    """`handle` takes one event and returns the instructions that follow from it.

    `in_flight` bounds the open rounds of all jobs together, or of those of each kind of device,
    since rounds in flight decide on older results. Each job may always have one.
    """

    def __init__(self, policy: Policy, in_flight: int | Mapping[str, int] | None = None) -> None:
        self.policy = policy
        self.estimates = Estimates()
        self.resources = Resources()
        self.jobs: dict[str, JobRecord] = {}
        self._in_flight = in_flight
        self._jobs_of_kind: Counter[str] = Counter()
        self._leases: dict[int, tuple[Held, Stage]] = {}
        self._next_lease = 1
        self._out: list[Instruction] = []
        #: Lanes that may look ahead, by the pool of their hosts, in the order they became able to.
        self._ahead: dict[Pool, dict[Lane, None]] = {}
        #: Pools in which a stage may start because of this event.
        self._touched: set[Pool] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobSubmitted: self._job_submitted,
            JobCancelled: self._job_cancelled,
            JobPaused: self._job_paused,
            JobResumed: self._job_resumed,
            StageFinished: self._stage_finished,
            ResourceJoined: self._resource_joined,
            ResourceLost: self._resource_lost,
            LeaseExpired: self._lease_expired,
            TimerFired: self._timer_fired,
        }
        policy.bind(self)

    @property
    def running(self) -> int:
        return len(self._leases)

    def handle(self, event: Event) -> list[Instruction]:
        self._out = []
        self._touched.clear()
        self._handlers[type(event)](event)
        self._fill(event.at)
        return self._out

    def looks_ahead(self, request: JobRequest) -> bool:
        """Whether the lanes of a job may select a batch before the previous one is measured."""
        wanted = request.lookahead
        return self.policy.lookahead if wanted is None else wanted

    # --- jobs

    def _job_submitted(self, event: JobSubmitted) -> None:
        request = event.request
        if request.job_id in self.jobs:
            raise InternalError(f"job {request.job_id} was submitted twice")
        job = JobRecord(request, self.looks_ahead(request))
        self.jobs[job.job_id] = job
        self._jobs_of_kind[request.device_kind] += 1
        for task_id, iteration, done in job.plan.unfinished():
            lane = job.lanes[task_id]
            lane.open(iteration, done)
            job.open_rounds += 1
            self._offer(lane, event.at)
            self._advance(lane, event.at)
        self._open_rounds(job, event.at)

    def _job_cancelled(self, event: JobCancelled) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.ending is not None:
            return
        job.ending = event.cause
        for lane in job.lanes.values():
            self._drop(lane, event.cause)
        self._finish_if_ended(job, event.at)

    def _job_paused(self, event: JobPaused) -> None:
        """Running stages finish; no further stage starts."""
        job = self.jobs.get(event.job_id)
        if job is None or job.paused:
            return
        job.paused = True
        for stage in job.stages():
            stage.ticket += 1  # leaves its queue

    def _job_resumed(self, event: JobResumed) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or not job.paused:
            return
        job.paused = False
        for stage in job.stages():
            if stage.state is StageState.READY:
                self._queue(stage, event.at)
        self._open_rounds(job, event.at)

    def _width(self, job: JobRecord, now: float) -> float:
        """The maximum number of open rounds of a job."""
        width, bound = job.request.width or math.inf, self._in_flight
        if bound is None:
            return width
        jobs = len(self.jobs)
        if isinstance(bound, Mapping):
            kind = job.request.device_kind
            bound, jobs = bound.get(kind), self._jobs_of_kind[kind]
        if bound is None:
            return width
        # A job in a hurry has as many as it would have alone.
        return min(width, bound if self.policy.hurries(job, now) else -(-bound // jobs))

    def _open_rounds(self, job: JobRecord, now: float) -> None:
        plan = job.plan
        while not job.paused and job.ending is None and job.open_rounds < self._width(job, now):
            task_id = None if plan.ended(now) else plan.next_lane(now)
            if task_id is None:
                break
            lane = job.lanes[task_id]
            lane.open(lane.iteration)
            job.open_rounds += 1
            self._advance(lane, now)
        if not job.open_rounds:
            self._finish_if_ended(job, now)

    def _finish_if_ended(self, job: JobRecord, now: float) -> None:
        if job.open_rounds or job.job_id not in self.jobs or (job.paused and job.ending is None):
            return
        if job.ending is not None:
            end, reason = JobEnd.CANCELLED, job.ending
        elif all(lane.failed for lane in job.lanes.values()) and job.lanes:
            end, reason = JobEnd.FAILED, next(iter(job.lanes.values())).failed
        else:
            # No round is open and the plan opened none: the job has ended.
            end, reason = JobEnd.DONE, job.plan.ended(now) or job.nothing_more
        del self.jobs[job.job_id]
        self._jobs_of_kind[job.request.device_kind] -= 1
        self.policy.finished(job)
        self.estimates.forget(job.job_id, list(job.lanes), job.request.order)
        self._out.append(FinishJob(job.job_id, end, reason))
        if self._in_flight is not None:  # the others may open more rounds now
            for other in list(self.jobs.values()):
                if other.job_id in self.jobs:  # it may have ended in this loop
                    self._open_rounds(other, now)

    # --- stages

    def _stage_finished(self, event: StageFinished) -> None:
        leased = self._leases.pop(event.lease, None)
        if leased is None:
            return  # its resource was lost meanwhile: the result comes too late
        held, stage = leased
        self._touched |= self.resources.release(held, event.lease)
        if held.suspended == _SILENT:
            self._touched |= self.resources.resume(held)
        if stage.lease != event.lease:
            return  # the lease had expired and the stage went elsewhere
        failed = event.end is End.FAILED
        if event.end is End.AWAY:
            if not held.suspended:
                self._quarantine(held, event.cause, event.at, AWAY_S)
        elif event.end is not End.ABANDONED:
            # What shares a device is disturbed on purpose.
            drifted = abs(event.drift) > MAX_DRIFT and not held.resource.shareable
            complaint = self.resources.judge(held, stage, failed, drifted)
            if complaint and not held.suspended:
                self._quarantine(held, complaint, event.at, complaint_s(held))
        if event.end is End.DONE:
            self._done(stage, event)
        elif event.end is End.AWAY and stage.state is StageState.RUNNING:
            stage.attempt -= 1  # not the stage's fault
            stage.move(Transition.RETRY)
            self._queue(stage, event.at)
        elif event.lost is not None and stage.state is StageState.RUNNING:
            self._lost(stage, event.lost, event.cause, event.at)
        elif stage.state is StageState.STOPPING:
            stage.move(Transition.STOPPED)
            self._close(stage.lane, event.at)
        else:
            self._failed(stage, event.cause or "the stage failed", event.at)

    def _done(self, stage: Stage, event: StageFinished) -> None:
        stage.move(Transition.FINISH)
        stage.again = False
        job, lane, kind = stage.job, stage.lane, stage.kind
        self.estimates.learn(job.job_id, lane.task_id, kind, event.seconds)
        self.policy.done(stage, event.seconds)
        productive = job.plan.absorb(stage.key, event.result, event.seconds)
        if lane.failed or job.ending is not None:
            self._close(lane, event.at)
            return
        if not productive:  # nothing to build: the round ends here
            for other in lane.rounds[stage.key.iteration]:
                if other.state is StageState.WAITING:
                    other.move(Transition.SKIP)
        job.open_rounds -= lane.close_finished()
        self._offer(lane, event.at)
        self._open_rounds(job, event.at)
        self._advance(lane, event.at)

    def _offer(self, lane: Lane, now: float) -> None:
        """Notify the plan once when a lane may open another round; look-ahead waits for an idle
        host, unless its job is in a hurry."""
        if lane.offered or not lane.extendable:
            return
        if lane.rounds and not self.policy.hurries(lane.job, now):
            self._ahead.setdefault(lane.job.pools[0], {})[lane] = None
        else:
            lane.offered = True
            lane.job.plan.closed(lane.task_id)

    def _failed(self, stage: Stage, cause: str, now: float) -> None:
        """An attempt failed: retry the stage, or give up its lane if it is poison."""
        if stage.attempt < ATTEMPTS:
            stage.move(Transition.RETRY)
            self._queue(stage, now)
            return
        stage.move(Transition.FAIL)
        lane = stage.lane
        lane.failed = f"{stage.key} failed {ATTEMPTS} times: {cause}"
        lane.job.plan.failed(lane.task_id, lane.failed)
        self._out.append(GiveUpLane(lane.job.job_id, lane.task_id, lane.failed))
        self._drop(lane, "another stage of its lane failed")
        self._close(lane, now)

    def _lost(self, stage: Stage, kind: WorkKind, cause: str, now: float) -> None:
        """The output of an earlier stage of the round is gone: rerun that stage, then retry."""
        earlier = next((s for s in stage.lane.rounds[stage.key.iteration] if s.kind is kind), None)
        if stage.attempt >= ATTEMPTS or earlier is None or earlier.state is not StageState.DONE:
            self._failed(stage, cause or f"the output of {kind} is lost", now)
            return
        stage.move(Transition.LOSE)
        earlier.again = True
        earlier.move(Transition.REOPEN)
        self._queue(earlier, now)

    def _drop(self, lane: Lane, reason: str) -> None:
        """Give up every stage of a lane and stop the running ones."""
        for stage in lane.stages():
            if stage.state in (StageState.WAITING, StageState.READY):
                stage.move(Transition.DROP)
            elif stage.state is StageState.RUNNING:
                stage.move(Transition.STOP)
                if stage.lease in self._leases:  # otherwise its resource was just lost
                    held, _ = self._leases[stage.lease]
                    resource_id = held.resource.resource_id
                    self._out.append(AbandonStage(stage.key, resource_id, stage.lease, reason))
        lane.job.open_rounds -= lane.close_finished()

    def _close(self, lane: Lane, now: float) -> None:
        """Drop finished rounds and let the job open others, or end."""
        lane.job.open_rounds -= lane.close_finished()
        self._open_rounds(lane.job, now)

    def _advance(self, lane: Lane, now: float) -> None:
        for stage in lane.enabled():
            stage.move(Transition.ENABLE)
            self._queue(stage, now)

    def _queue(self, stage: Stage, now: float) -> None:
        stage.ticket += 1
        stage.ready_at = now
        if not stage.job.paused:
            self.policy.add(stage, now)
            self._touched.add(stage.pool)

    # --- resources

    def _resource_joined(self, event: ResourceJoined) -> None:
        known = self.resources.get(event.resource.resource_id)
        if known is not None:
            self._lose(event.resource.resource_id, "it joined again", event.at)
        self._touched.update(self.resources.join(event.resource).pools)

    def _resource_lost(self, event: ResourceLost) -> None:
        self._lose(event.resource_id, event.cause, event.at)

    def _lose(self, resource_id: str, cause: str, now: float) -> None:
        held = self.resources.get(resource_id)
        if held is None:
            return
        leases = list(held.leases.items())
        self._touched |= self.resources.leave(held)
        # All leases first: giving up one stage may affect another that ran here.
        for lease, _ in leases:
            del self._leases[lease]
        for lease, stage in leases:
            if stage.lease != lease:
                continue
            if stage.state is StageState.STOPPING:
                stage.move(Transition.STOPPED)
                self._close(stage.lane, now)
            else:
                self._failed(stage, cause, now)

    def _lease_expired(self, event: LeaseExpired) -> None:
        """Move the stage to another resource; this one starts nothing until it responds."""
        leased = self._leases.get(event.lease)
        if leased is None:
            return
        held, stage = leased
        if not held.suspended:
            self.resources.suspend(held, _SILENT)
        resource_id = held.resource.resource_id
        self._out.append(AbandonStage(stage.key, resource_id, event.lease, event.cause))
        if stage.lease == event.lease and stage.state is StageState.RUNNING:
            stage.lease = 0
            self._failed(stage, event.cause, event.at)

    def _quarantine(
        self, held: Held, reason: str, now: float, lengths_s: tuple[float, float]
    ) -> None:
        until = held.until = now + quarantine_s(held, *lengths_s)
        resource_id = held.resource.resource_id
        self.resources.suspend(held, reason)
        self._out.append(QuarantineResource(resource_id, reason, until))
        self._out.append(SetTimer(resource_id, until))

    def _timer_fired(self, event: TimerFired) -> None:
        """A quarantine is over: the resource may start stages again."""
        held = self.resources.get(event.timer)
        if held is None or event.at < held.until:
            return  # the timer of an earlier quarantine
        if held.suspended and held.suspended != _SILENT:
            self._touched |= self.resources.resume(held)

    # --- matching

    def _fill(self, now: float) -> None:
        """Start the stages that the policy picks on every free resource, devices first."""
        of_any = self.policy.gated or self.resources.any_beside
        for pool in self.resources.in_turn(self.resources.pools() if of_any else self._touched):
            while (held := self.resources.startable(pool)) and not self._yields(held):
                stage = self.policy.take(pool, now)
                if stage is not None:
                    self._start(stage, held, now)
                elif not self._look_ahead(pool, now):
                    break

    def _yields(self, held: Held) -> bool:
        """Whether a resource leaves the units that it uses beside its own to a stage which waits
        for them to be free: else two such resources would never leave them."""
        if not held.resource.beside:
            return False
        overtaken = set(self.resources.overtaken(held))
        return any(
            stage.state is StageState.READY and stage.pool in overtaken
            for job in self.jobs.values() if overtaken and not job.paused
            for stage in job.stages()
        )  # fmt: skip

    def _look_ahead(self, pool: Pool, now: float) -> bool:
        """Let one lane open its next round early for an idle host."""
        lanes = self._ahead.get(pool)
        while lanes:
            lane = next(iter(lanes))
            del lanes[lane]
            job = lane.job
            # A skipped lane is offered again when its next stage ends.
            barred = lane.offered or job.paused or job.ending is not None or not lane.extendable
            if not barred and job.open_rounds < self._width(job, now):
                lane.offered = True
                job.plan.closed(lane.task_id)
                self._open_rounds(job, now)
                return True
        return False

    def _start(self, stage: Stage, held: Held, now: float) -> None:
        lease = self._next_lease
        self._next_lease += 1
        stage.move(Transition.START)
        stage.attempt += 1
        stage.lease = lease
        self.resources.start(held, stage, lease)
        self._leases[lease] = (held, stage)
        waited_s = now - stage.ready_at
        resource_id, again = held.resource.resource_id, stage.again
        self._out.append(StartStage(stage.key, resource_id, lease, stage.attempt, waited_s, again))

    def story(self) -> dict[StageKey, StageState]:
        """The state of every stage in flight, for tests and monitoring."""
        return {s.key: s.state for job in self.jobs.values() for s in job.stages()}


#: Suspension reason after an expired lease: the resource's units may still be in use.
_SILENT = "silent since a lease expired"
