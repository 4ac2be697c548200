"""The policy protocol, and the queue that most policies use."""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from tunefleet.scheduler.estimates import Estimates
from tunefleet.scheduler.lanes import JobRecord, Pool, Stage
from tunefleet.scheduler.resources import Resources
from tunefleet.scheduler.transitions import StageState


class PolicyView(Protocol):
    """The part of the scheduler's state that a policy may read."""

    estimates: Estimates
    resources: Resources

    @property
    def jobs(self) -> dict[str, JobRecord]:
        """Unfinished jobs in the order they were submitted."""
        ...

    @property
    def running(self) -> int:
        """The number of running stages."""
        ...


class Policy(Protocol):
    """Picks the ready stage that starts on a free resource."""

    name: str
    #: Whether a stage may wait although its resource is free. If so, any event can make a stage of
    #: any pool start.
    gated: bool
    #: The default of look-ahead for jobs that do not set it.
    lookahead: bool

    def bind(self, view: PolicyView) -> None: ...

    def add(self, stage: Stage, now: float) -> None:
        """A stage became ready."""
        ...

    def take(self, pool: Pool, now: float) -> Stage | None:
        """The stage to start on a free resource of a pool, or None to leave it idle."""
        ...

    def hurries(self, job: JobRecord, now: float) -> bool:
        """Whether its lanes look ahead even while other stages wait for the hosts."""
        ...

    def done(self, stage: Stage, seconds: float) -> None:
        """A stage ended well after so many seconds on its resource."""
        ...

    def finished(self, job: JobRecord) -> None:
        """A job has ended; none of its stages becomes ready again."""
        ...


class Queue:
    """A priority queue of ready stages, smallest key first. Stages that are no longer ready are
    skipped."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, int, Stage]] = []
        self._sequence = 0

    def push(self, key: Any, stage: Stage) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (key, self._sequence, stage.ticket, stage))

    def head(self) -> tuple[Any, Stage] | None:
        """The smallest key and its stage, without removing it."""
        while self._heap:
            key, _, ticket, stage = self._heap[0]
            if stage.ticket == ticket and stage.state is StageState.READY:
                return key, stage
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Stage | None:
        head = self.head()
        if head is None:
            return None
        heapq.heappop(self._heap)
        return head[1]


class Queues:
    """One queue per pool."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[Pool, Queue] = {}

    def __getitem__(self, pool: Pool) -> Queue:
        queue = self._of.get(pool)
        if queue is None:
            queue = self._of[pool] = Queue()
        return queue

    @property
    def empty(self) -> bool:
        return all(queue.head() is None for queue in self._of.values())
