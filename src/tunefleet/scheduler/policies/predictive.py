"""Load-aware policy: shorter jobs first, long lanes in time for the estimated end of all work."""

from __future__ import annotations

import math

from tunefleet.core.stage import StageKind
from tunefleet.scheduler.lanes import JobRecord, Pool, Stage
from tunefleet.scheduler.names import PREDICTIVE
from tunefleet.scheduler.policies._base import PolicyView, Queues
from tunefleet.scheduler.policies._loads import JobLoad, LoadGroup, Pace
from tunefleet.scheduler.policies._shares import Class, FairShares
from tunefleet.scheduler.values import ROLE_OF, Role

#: Expected seconds per second of work for a lane that goes first: it still waits for running
#: stages.
_STRETCH = 2.0
#: A job with a deadline is in a hurry when less than so many times the seconds are left that it and
#: what follows it by then still take: estimates are rough, and other work holds it up.
_SLACK = 12.0
#: Weight of the latest moment in a stage's due time. More shortens the time to a result of short
#: jobs, and lengthens the makespan of the worst mixes.
_LATEST = 0.3


class Predictive:
    """Each stage is due between two times; the most overdue stage goes first.

    The first is the latest moment for it: the time at which its job ends if shorter jobs of its
    owner go first, less the seconds that its lane still takes. Shortest remaining work first gives
    the least mean time to a result, and a lane that is about as long as all work together starts
    at once, so that it does not run alone in the end.

    The second is on a straight line from the lane's start to an end between that of its job and
    that of all work. If all lanes progress in proportion to their length, the mix of host and
    device work stays the same to the end, and no resource idles while others still have work.
    Update, select and build of a lane are due together and therefore run back to back, so that a
    started round reaches the device.

    Owners, and the priorities of each, get shares of the device time (`FairShares`); due times
    order the stages below one of them. A job whose deadline is at risk goes before all others until
    the deadline has passed: earliest deadline first, of one job the longest lane first; its owner
    gives back what that takes from others. Its lanes look ahead at once instead of waiting for an
    idle host. The due time of a waiting stage never changes while those of others move on with the
    clock, so only an endless stream of deadlines of its own owner can starve it.
    """

    name = PREDICTIVE
    gated = False
    lookahead = True

    def bind(self, view: PolicyView) -> None:
        self._view = view
        self._shares = FairShares()
        #: Stages of jobs with a deadline, by the time from which they must hurry.
        self._tight = Queues()
        self._loads: dict[str, JobLoad] = {}
        #: Jobs of one owner and priority on the same pools.
        self._groups: dict[tuple[Class, tuple[Pool, Pool]], LoadGroup] = {}

    def add(self, stage: Stage, now: float) -> None:
        lane, request = stage.lane, stage.job.request
        load = self._loads.get(request.job_id)
        if load is None:
            load = self._join(stage.job)
        pace = load.paces.get(lane)
        is_new = pace is None
        if pace is None:
            pace = load.open(lane, now, stage.key.iteration)
        host_s, device_s, total_s = self._remaining(stage, pace)
        load.account(pace, host_s, device_s)
        if is_new or stage.kind in (StageKind.PROFILE, StageKind.UPDATE):
            pace.due = self._due(stage, load, pace, total_s, now)
        if request.deadline is not None and now < request.deadline:
            tight_at = self._tight_at(stage.job, load, host_s + device_s)
            if tight_at <= now:
                self._hurry(stage)
                return
            self._tight[stage.pool].push(tight_at, stage)
        # Of stages due together, the one closest to its device goes first.
        self._shares.push(stage, (1, pace.due, -stage.position))

    def _tight_at(self, job: JobRecord, load: JobLoad, lane_s: float = 0.0) -> float:
        """The time from which a job must hurry to meet its deadline."""
        request = job.request
        if request.following is None or request.deadline is None:
            return -math.inf
        estimate = self._view.estimates.seconds
        following_s = sum(estimate(job.job_id, "", kind) for kind in request.following)
        alone_s = max(load.alone_s(self._counts(job)), lane_s)
        return request.deadline - _SLACK * (alone_s + following_s)

    def _hurry(self, stage: Stage) -> None:
        pace = self._loads[stage.job.job_id].paces[stage.lane]
        lane_s = pace.host_s + pace.device_s
        self._shares.push(stage, (0, stage.job.request.deadline, -lane_s))

    def _due(self, stage: Stage, load: JobLoad, pace: Pace, total_s: float, now: float) -> float:
        counts, share = self._counts(stage.job), self._shares.share(stage.job.request)
        lane_s = pace.host_s + pace.device_s
        begun = 1 - lane_s / total_s if total_s else 0.0
        # Seconds until the job ends if shorter ones go first, and until all work of its owner ends.
        job_s = max(lane_s, load.end_s(counts, share))
        all_s = max(job_s, load.group.end_s(counts, share))
        latest = now + job_s - _STRETCH * lane_s
        steady_end = now + math.sqrt(job_s * all_s)
        steady = pace.start + begun * (steady_end - pace.start)
        return _LATEST * latest + (1 - _LATEST) * steady

    def take(self, pool: Pool, now: float) -> Stage | None:
        tight = self._tight[pool]
        while (head := tight.head()) is not None and head[0] <= now:
            tight.pop()
            self._hurry(head[1])
        return self._shares.take(pool, self._view.estimates)

    def hurries(self, job: JobRecord, now: float) -> bool:
        deadline = job.request.deadline
        if deadline is None or deadline <= now:
            return False
        load = self._loads.get(job.job_id)
        return load is not None and self._tight_at(job, load) <= now

    def done(self, stage: Stage, seconds: float) -> None:
        self._shares.settle(stage, seconds)

    def finished(self, job: JobRecord) -> None:
        load = self._loads.pop(job.job_id, None)
        if load is None:
            return  # no stage of it became ready
        self._shares.leave(job)
        load.group.leave(load)
        if not load.group.jobs:
            del self._groups[FairShares.class_of(job.request), job.pools]

    def _join(self, job: JobRecord) -> JobLoad:
        self._shares.join(job.request)
        name = FairShares.class_of(job.request), job.pools
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = LoadGroup()
        load = self._loads[job.job_id] = group.join()
        return load

    def _counts(self, job: JobRecord) -> tuple[int, int]:
        """How many hosts and devices can run a job's stages."""
        host, device = job.pools
        resources = self._view.resources
        return max(1, resources.count(host)), max(1, resources.count(device))

    def _remaining(self, stage: Stage, pace: Pace) -> tuple[float, float, float]:
        """Seconds of host work and of device work from this stage to the end of its lane, and of
        all its work from its start to its end."""
        estimate, job_id, task_id = (
            self._view.estimates.seconds,
            stage.job.job_id,
            stage.lane.task_id,
        )
        left = stage.job.plan.rounds_left(task_id)
        host_s = device_s = round_s = 0.0
        for index, kind in enumerate(stage.job.request.order):
            stage_s = estimate(job_id, task_id, kind)
            round_s += stage_s
            seconds = stage_s * (left + (index >= stage.position))
            if ROLE_OF[kind] is Role.DEVICE:
                device_s += seconds
            else:
                host_s += seconds
        return host_s, device_s, (stage.key.iteration - pace.first + left + 1) * round_s
