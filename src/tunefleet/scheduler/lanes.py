"""Jobs, their lanes and the stages in flight, independent of resources."""

from __future__ import annotations

from collections.abc import Iterator

from tunefleet.core.job import NOTHING_LEFT, NOTHING_TO_TUNE
from tunefleet.core.stage import StageKey, StageKind, WorkKind
from tunefleet.scheduler.transitions import StageState, Transition, moved
from tunefleet.scheduler.values import ROLE_OF, JobRequest, Role, at_home

#: (role, kind of resource) that a stage needs and a resource provides.
Pool = tuple[Role, str]


class Stage:
    """One stage of an open round. `ticket` changes whenever it joins or leaves a queue."""

    __slots__ = ("again", "attempt", "job", "key", "kind", "lane", "lease", "pool", "position",
                 "ready_at", "state", "ticket")  # fmt: skip

    def __init__(self, lane: Lane, iteration: int, kind: WorkKind, position: int) -> None:
        self.lane = lane
        self.job = lane.job
        self.kind = kind
        #: Its index in its round.
        self.position = position
        self.key = StageKey(lane.job.job_id, lane.task_id, iteration, kind)
        self.pool: Pool = lane.job.pools[0 if ROLE_OF[kind] is Role.HOST else 1]
        self.state = StageState.WAITING
        self.attempt = 0
        #: Whether it finished before and its output was lost.
        self.again = False
        self.lease = 0
        self.ready_at = 0.0
        self.ticket = 0

    def move(self, move: Transition) -> None:
        self.state = moved(self.state, move, self)

    def __str__(self) -> str:
        return f"{self.key}, attempt {self.attempt}"


class Lane:
    """The sequence of stages of one task. With look-ahead, the next batch may be selected and built
    before the current one is profiled; only one batch ahead."""

    __slots__ = ("failed", "iteration", "job", "offered", "rounds", "task_id")

    def __init__(self, job: JobRecord, task_id: str, iteration: int) -> None:
        self.job = job
        self.task_id = task_id
        self.iteration = iteration
        #: iteration -> its stages in order; a finished round is dropped.
        self.rounds: dict[int, list[Stage]] = {}
        self.failed = ""
        #: Whether the plan was notified that another round may be opened: true before the first.
        self.offered = True

    def open(self, iteration: int, done: frozenset[WorkKind] = frozenset()) -> None:
        order = self.job.request.order
        stages = [Stage(self, iteration, kind, place) for place, kind in enumerate(order)]
        for stage in stages if done else ():
            if stage.kind in done:
                stage.state = StageState.DONE
        self.rounds[iteration] = stages
        self.offered = False
        self.iteration = max(self.iteration, iteration + 1)

    @property
    def extendable(self) -> bool:
        """Whether the lane may open another round."""
        if not self.job.lookahead:
            return not self.rounds
        order, done = self.job.request.order, StageState.DONE
        built, measured = order.index(StageKind.BUILD), order.index(StageKind.PROFILE)
        unmeasured = [r for r in self.rounds.values() if r[measured].state is not done]
        return len(unmeasured) < 2 and all(r[built].state is done for r in unmeasured)

    def enabled(self) -> list[Stage]:
        """Waiting stages whose predecessors are done: the previous stage of the round, and the same
        stage of the previous round."""
        found = []
        earlier: list[Stage] | None = None
        for stages in self.rounds.values():  # in the order they were opened
            for stage in stages:
                if stage.state is StageState.DONE:
                    continue
                if stage.state is StageState.WAITING and (
                    # A batch may be selected before the previous one is measured, but not before
                    # that one is built: its candidates must be known.
                    earlier is None
                    or earlier[stage.position or min(1, len(stages) - 1)].state is StageState.DONE
                ):
                    found.append(stage)
                break
            earlier = stages
        return found

    def close_finished(self) -> int:
        """Drop finished rounds; returns their number. A lane that was given up only waits for its
        workers."""
        if self.failed or self.job.ending is not None:
            over = [i for i, stages in self.rounds.items() if not any(map(_held, stages))]
        else:
            over = [i for i, s in self.rounds.items() if s[-1].state is StageState.DONE]
        for iteration in over:
            del self.rounds[iteration]
        return len(over)

    def stages(self) -> Iterator[Stage]:
        for stages in self.rounds.values():
            yield from stages


def _held(stage: Stage) -> bool:
    """Whether a worker still runs it."""
    return stage.state in (StageState.RUNNING, StageState.STOPPING)


class JobRecord:
    """A job in the scheduler. `ending`: why it was cancelled, which may be empty, or None."""

    __slots__ = ("ending", "job_id", "lanes", "lookahead", "open_rounds", "paused", "plan",
                 "pools", "request")  # fmt: skip

    def __init__(self, request: JobRequest, lookahead: bool) -> None:
        self.request = request
        self.lookahead = lookahead
        self.job_id = request.job_id
        self.plan = request.plan
        device = at_home(request.device_kind) if request.needs_home else request.device_kind
        self.pools: tuple[Pool, Pool] = ((Role.HOST, request.host_kind), (Role.DEVICE, device))
        self.paused = False
        self.ending: str | None = None
        self.open_rounds = 0
        self.lanes = {t: Lane(self, t, i) for t, i in request.plan.lanes().items()}

    @property
    def nothing_more(self) -> str:
        """Why its plan opens no round while there is budget left."""
        return NOTHING_LEFT if self.lanes else NOTHING_TO_TUNE

    def stages(self) -> Iterator[Stage]:
        for lane in self.lanes.values():
            yield from lane.stages()
