"""Shares of device time: which owner's stage goes next."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tunefleet.core.stage import WorkKind
from tunefleet.scheduler.estimates import Estimates
from tunefleet.scheduler.lanes import JobRecord, Pool, Stage
from tunefleet.scheduler.policies._base import Queue
from tunefleet.scheduler.values import ROLE_OF, JobRequest, Role

#: An owner and a priority of its jobs.
Class = tuple[str, int]
#: Rounds by whose device time a class may be behind the others when it has work again: it may have
#: had none for a moment only.
_CREDIT = 8.0
#: Device seconds, over its weight, by which a class may be ahead of the others for deadlines.
_AHEAD_S = 3600.0
#: A key behind those of all stages in a hurry, which begin with 0.
_NOT_IN_A_HURRY = (1,)


@dataclass(slots=True)
class _Account:
    """Device seconds over weight that a class had, as it is counted on hosts and on devices, and
    how many of them it had before its turn."""

    queues: dict[Pool, Queue] = field(default_factory=dict)
    used: dict[Role, float] = field(default_factory=lambda: dict.fromkeys(Role, 0.0))
    early: dict[Role, float] = field(default_factory=lambda: dict.fromkeys(Role, 0.0))


class FairShares:
    """Start-time fair queueing (Goyal, Vin, Cheng 1996) of classes: an owner's weight is 2 to the
    highest priority of its jobs, divided over its priorities in proportion to 2 to each.

    The unit is device time. On devices a stage is charged as it starts. On hosts a round is charged
    as it starts, with the device time that it will take, so that a busy host does not begin the
    rounds of one owner only. Both are corrected when it is known what the device stage took. A
    class that leaves its share to others gets no more than a few rounds of it back.

    A stage in a hurry, by its key, goes before all classes, whatever its own had, until that is
    ahead of the others by `_AHEAD_S`. It is charged as any other, so its class waits afterwards.
    """

    def __init__(self) -> None:
        self._accounts: dict[Class, _Account] = {}
        #: The account of each job that has had a stage.
        self._of_job: dict[JobRecord, _Account] = {}
        self._jobs: Counter[Class] = Counter()
        self._weights: dict[Class, float] = {}
        self._whole = 0.0
        #: What the last class that was served had used.
        self._level = dict.fromkeys(Role, 0.0)
        #: By job, the seconds that were charged for device stages which have not ended, and whether
        #: they were in a hurry.
        self._charged: dict[str, dict[tuple[Role, str, int, WorkKind], tuple[float, bool]]] = {}
        #: What classes without jobs had used that were ahead of the others as they left.
        self._left: dict[Class, dict[Role, float]] = {}

    @staticmethod
    def class_of(request: JobRequest) -> Class:
        return request.user, request.priority

    def share(self, request: JobRequest) -> float:
        """The share of the device time that a job's class gets."""
        return self._weights[self.class_of(request)] / self._whole

    def join(self, request: JobRequest) -> None:
        self._jobs[self.class_of(request)] += 1
        self._weigh()

    def leave(self, job: JobRecord) -> None:
        self._charged.pop(job.job_id, None)
        self._of_job.pop(job, None)
        name = self.class_of(job.request)
        self._jobs[name] -= 1
        if not self._jobs[name]:
            del self._jobs[name]
            self._part(name)
        self._weigh()

    def _part(self, name: Class) -> None:
        """A class has no job left. Where it is ahead, it still is when it comes again, as long as
        there is another one."""
        account = self._accounts.pop(name, None)
        if account is not None and any(account.early.values()):
            self._left[name] = account.used
        ahead = {n: u for n, u in self._left.items() if any(u[r] > self._level[r] for r in Role)}
        self._left = ahead if self._accounts else {}

    def push(self, stage: Stage, key: Any) -> None:
        account = self._of_job.get(stage.job)
        if account is None:
            account = self._of_job[stage.job] = self._account_of(self.class_of(stage.job.request))
        queue = account.queues.get(stage.pool)
        if queue is None:
            queue = account.queues[stage.pool] = Queue()
        queue.push(key, stage)

    def take(self, pool: Pool, estimates: Estimates) -> Stage | None:
        """The first stage that is in a hurry, or that of the class that has had the least; it is
        charged. The only class there is has all: another one begins where it is."""
        if len(self._accounts) == 1:
            queue = next(iter(self._accounts.values())).queues.get(pool)
            return None if queue is None else queue.pop()
        role, first, least = pool[0], None, math.inf
        urgent, soonest, ahead = None, _NOT_IN_A_HURRY, 0.0
        for account in self._accounts.values():
            queue = account.queues.get(pool)
            head = None if queue is None else queue.head()
            if head is None:
                continue
            used = account.used[role]
            if used < least:
                first, least = queue, used
            if head[0] < soonest:
                urgent, soonest, ahead = queue, head[0], used
        hurries = urgent is not None and ahead - least <= _AHEAD_S
        queue = urgent if hurries else first
        stage = None if queue is None else queue.pop()
        if stage is not None:
            self._charge(stage, estimates, hurries)
        return stage

    def _charge(self, stage: Stage, estimates: Estimates, hurries: bool) -> None:
        role, order = stage.pool[0], stage.job.request.order
        if role is Role.HOST and stage.position:
            return
        job_id, task_id, iteration = stage.job.job_id, stage.lane.task_id, stage.key.iteration
        of_stages = {
            (role, task_id, iteration, kind): (estimates.seconds(job_id, task_id, kind), hurries)
            for kind in ([stage.kind] if role is Role.DEVICE else order)
            if ROLE_OF[kind] is Role.DEVICE
        }
        self._charged.setdefault(job_id, {}).update(of_stages)
        name = self.class_of(stage.job.request)
        account = self._accounts[name]
        cost = sum(seconds for seconds, _ in of_stages.values()) / self._weights[name]
        account.used[role] = max(account.used[role], self._level[role] - _CREDIT * cost)
        if hurries:
            account.early[role] += cost
        else:  # what it had early is no turn of its own: the others keep their credit
            ahead = max(0.0, account.used[role] - self._level[role])
            account.early[role] = min(account.early[role], ahead)
            in_turn = account.used[role] - account.early[role]
            self._level[role] = max(self._level[role], in_turn)
        account.used[role] += cost

    def settle(self, stage: Stage, seconds: float) -> None:
        """A stage took so long: correct what was charged for it."""
        charged = self._charged.get(stage.job.job_id)
        if charged is None:
            return
        account = self._of_job[stage.job]
        weight = self._weights[self.class_of(stage.job.request)]
        for role in Role:
            key = (role, stage.lane.task_id, stage.key.iteration, stage.kind)
            charge = charged.pop(key, None)
            if charge is not None:
                charged_s, hurried = charge
                account.used[role] += (seconds - charged_s) / weight
                account.early[role] += hurried * (seconds - charged_s) / weight

    def _account_of(self, name: Class) -> _Account:
        """A class that comes is behind as far as the last one, which `_charge` bounds, unless it
        was ahead when it left."""
        account = self._accounts.get(name)
        if account is not None:
            return account
        others = self._accounts.values()
        least = {r: min((o.used[r] for o in others), default=self._level[r]) for r in Role}
        account = self._accounts[name] = _Account(used=least)
        for role, used in self._left.pop(name, {}).items():
            account.used[role] = max(used, least[role])
            account.early[role] = account.used[role] - least[role]
        return account

    def _weigh(self) -> None:
        highest: dict[str, int] = {}
        whole: dict[str, float] = {}
        for user, priority in self._jobs:
            highest[user] = max(highest.get(user, priority), priority)
        for user, priority in self._jobs:
            whole[user] = whole.get(user, 0.0) + 2.0 ** (priority - highest[user])
        self._weights = {
            (user, priority): 2.0**priority / whole[user] for user, priority in self._jobs
        }
        self._whole = sum(self._weights.values())
