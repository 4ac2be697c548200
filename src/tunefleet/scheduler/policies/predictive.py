"""Load-aware policy: every lane keeps pace with the estimated end of all work."""

from __future__ import annotations

from dataclasses import dataclass

from tunefleet.core.stage import StageKind
from tunefleet.scheduler.lanes import JobRecord, Lane, Pool, Stage
from tunefleet.scheduler.names import PREDICTIVE
from tunefleet.scheduler.policies._base import PolicyView, Queues
from tunefleet.scheduler.policies._shares import FairShares
from tunefleet.scheduler.resources import Held
from tunefleet.scheduler.values import ROLE_OF, Role

#: Expected seconds per second of work for a lane that goes first: it still waits for running
#: stages.
_STRETCH = 2.0


@dataclass(slots=True)
class _Pace:
    """`begun` is the lane's progress at its last profile or update; select and build keep it."""

    start: float
    first: int
    begun: float = 0.0
    host_s: float = 0.0
    device_s: float = 0.0


class Predictive:
    """Each stage is due on a straight line from its lane's start to its user's horizon; the most
    overdue stage goes first.

    If all lanes progress in proportion to their length, the mix of host and device work stays the
    same to the end, and no resource idles while others still have work. "Longest lane first" does
    not ensure that. Update, select and build of a lane are due together and therefore run back to
    back, so that a started round reaches the device. Users, and the priorities of each, get shares
    of the device time (`FairShares`); due times order the stages below one of them. The horizon is
    the estimated end of a user's work on a fair share of the machines. A lane
    close to its deadline goes before all others while the deadline can still be met. The due time
    of a waiting stage never changes, so only an endless stream of deadlines can starve it.
    """

    name = PREDICTIVE
    gated = False
    lookahead = True

    def bind(self, view: PolicyView) -> None:
        self._view = view
        self._shares = FairShares()
        #: Stages of jobs with a deadline, by the time from which they must go first.
        self._tight = Queues()
        self._paces: dict[str, dict[Lane, _Pace]] = {}
        #: Estimated remaining seconds of work, by user and pool.
        self._work: dict[str, dict[Pool, float]] = {}

    def add(self, stage: Stage, now: float) -> None:
        lane, request = stage.lane, stage.job.request
        paces = self._paces.get(request.job_id)
        if paces is None:
            paces = self._paces[request.job_id] = {}
            self._shares.join(request)
        self._shares.settle(stage, now)
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
        due = pace.start + pace.begun * (finish - pace.start)
        if request.deadline is not None:
            tight_at = request.deadline - _STRETCH * (host_s + device_s)
            self._tight[stage.pool].push((tight_at, request.deadline), stage)
        # Of stages due together, the one closest to its device goes first.
        self._shares.push(stage, (due, -stage.position))

    def take(self, held: Held, now: float) -> Stage | None:
        stage = self._urgent(held.pool, now) or self._shares.pop(held.pool)
        if stage is not None:
            self._shares.charge(stage, self._view.estimates, now)
        return stage

    def _urgent(self, pool: Pool, now: float) -> Stage | None:
        tight = self._tight[pool]
        while (head := tight.head()) is not None and head[0][0] <= now:
            tight.pop()
            (_, deadline), stage = head
            if deadline > now:  # otherwise the deadline is missed already
                return stage
        return None

    def finished(self, job: JobRecord) -> None:
        paces = self._paces.pop(job.job_id, None)
        if paces is None:
            return  # no stage of it became ready
        self._shares.leave(job)
        for pace in paces.values():
            work = self._work[job.request.user]
            for pool in job.pools:
                work[pool] -= pace.host_s if pool[0] is Role.HOST else pace.device_s
        if not any(j.request.user == job.request.user for j in self._view.jobs.values()):
            self._work.pop(job.request.user, None)

    def _remaining(self, stage: Stage) -> tuple[float, float, float]:
        """Seconds of host work and of device work from this stage to the end of its lane, and the
        number of rounds including the open one."""
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
        """Estimated seconds until a user's work ends on a fair share of the machines."""
        users, resources = len(self._work), self._view.resources
        shares = (s * users / max(1, resources.count(p)) for p, s in self._work[user].items())
        return max(lane_s, *shares)
