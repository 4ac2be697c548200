"""Load-aware: every lane keeps pace with the time at which all work can be done."""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.core.stage import StageKind
from tunefleet.scheduler.lanes import JobRecord, Lane, Pool, Stage
from tunefleet.scheduler.names import PREDICTIVE
from tunefleet.scheduler.policies._base import PolicyView, Queues
from tunefleet.scheduler.resources import Held
from tunefleet.scheduler.values import ROLE_OF, Role

#: Seconds that a second of work is expected to take for a lane that goes first: it still waits
#: for stages that run.
_STRETCH = 2.0


@dataclass(slots=True)
class _Pace:
    """`begun` is the lane's progress at its last profile or update: select and build keep it."""

    start: float
    first: int
    begun: float = 0.0
    host_s: float = 0.0
    device_s: float = 0.0


class Predictive:
    """Every stage is due on a straight line from its lane's start to its user's horizon, the most
    overdue goes first.

    Lanes that all progress in proportion to their length keep the mix of host and device work the
    same to the end, so that no resource runs dry while others still have work; "longest lane
    first" does not. Update, select and build of a lane are due together and so run back to back:
    what has begun reaches the device. The horizon is when a user's work ends on that user's fair
    share of the machines; a priority bends the line, and a lane whose deadline comes near goes
    before all others while it can still keep it. Due times never move once a stage waits, so
    nothing starves but under an endless stream of deadlines.
    """

    name = PREDICTIVE
    gated = False
    lookahead = True

    def bind(self, view: PolicyView) -> None:
        self._view = view
        self._queues = Queues()
        #: Stages of jobs with a deadline, by the time from which they must go first.
        self._tight = Queues()
        self._paces: dict[str, dict[Lane, _Pace]] = {}
        #: Estimated seconds of work left, by user and pool.
        self._work: dict[str, dict[Pool, float]] = {}

    def add(self, stage: Stage, now: float) -> None:
        lane, request = stage.lane, stage.job.request
        paces = self._paces.setdefault(stage.job.job_id, {})
        pace = paces.get(lane)
        if pace is None:
            pace = paces[lane] = _Pace(now, stage.key.iteration)
        host_s, device_s, rounds = self._remaining(stage)
        self._account(stage, pace, host_s, device_s)
        if stage.kind in (StageKind.PROFILE, StageKind.UPDATE):
            done = stage.key.iteration - pace.first
            round_s = self._view.estimates.round_seconds(stage.job.job_id, lane.task_id)
            total = (done + rounds) * round_s
            pace.begun = 1 - (host_s + device_s) / total if total else 0.0
        finish = now + self._horizon(request.user, host_s + device_s)
        due = pace.start + pace.begun * (finish - pace.start) / 2.0**request.priority
        if request.deadline is not None:
            tight_at = request.deadline - _STRETCH * (host_s + device_s)
            self._tight[stage.pool].push((tight_at, request.deadline), stage)
        # Of stages due together the one nearest to its device goes first.
        self._queues[stage.pool].push((due, -stage.position), stage)

    def take(self, held: Held, now: float) -> Stage | None:
        tight = self._tight[held.pool]
        while (head := tight.head()) is not None and head[0][0] <= now:
            tight.pop()
            (_, deadline), stage = head
            if deadline > now:  # else it is too late to hurry, and it waits like any other
                return stage
        return self._queues[held.pool].pop()

    def finished(self, job: JobRecord) -> None:
        for pace in self._paces.pop(job.job_id, {}).values():
            work = self._work[job.request.user]
            for pool in job.pools:
                work[pool] -= pace.host_s if pool[0] is Role.HOST else pace.device_s
        if not any(j.request.user == job.request.user for j in self._view.jobs.values()):
            self._work.pop(job.request.user, None)

    def _remaining(self, stage: Stage) -> tuple[float, float, float]:
        """Seconds of host and of device work from this stage to the end of its lane, and its
        rounds from the open one on."""
        estimates, job_id, task_id = self._view.estimates, stage.job.job_id, stage.lane.task_id
        left = stage.job.plan.rounds_left(task_id)
        host_s = device_s = 0.0
        for index, kind in enumerate(stage.job.request.order):
            times = left + (index >= stage.position)
            seconds = estimates.seconds(job_id, task_id, kind) * times
            if ROLE_OF[kind] is Role.DEVICE:
                device_s += seconds
            else:
                host_s += seconds
        return host_s, device_s, left + 1

    def _account(self, stage: Stage, pace: _Pace, host_s: float, device_s: float) -> None:
        work = self._work.setdefault(stage.job.request.user, {})
        for pool in stage.job.pools:
            change = host_s - pace.host_s if pool[0] is Role.HOST else device_s - pace.device_s
            work[pool] = work.get(pool, 0.0) + change
        pace.host_s, pace.device_s = host_s, device_s

    def _horizon(self, user: str, lane_s: float) -> float:
        """Seconds until a user's work can be done on a fair share of the machines."""
        users, resources = len(self._work), self._view.resources
        shares = (s * users / max(1, resources.count(p)) for p, s in self._work[user].items())
        return max(lane_s, *shares)
