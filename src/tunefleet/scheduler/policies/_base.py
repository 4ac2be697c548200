"""What a policy is, and the queue most of them use."""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from tunefleet.scheduler.estimates import Estimates
from tunefleet.scheduler.lanes import JobRecord, Pool, Stage
from tunefleet.scheduler.resources import Held, Resources
from tunefleet.scheduler.transitions import StageState


class PolicyView(Protocol):
    """What a policy may look at."""

    estimates: Estimates
    resources: Resources

    @property
    def jobs(self) -> dict[str, JobRecord]:
        """Unfinished jobs in the order they were submitted."""
        ...

    @property
    def running(self) -> int:
        """Stages that run now."""
        ...


class Policy(Protocol):
    """Picks which ready stage starts on a free resource."""

    name: str
    #: Whether a stage may have to wait although its resource is free: then every event can let
    #: something start anywhere.
    gated: bool
    #: Whether lanes look ahead where the job does not say.
    lookahead: bool

    def bind(self, view: PolicyView) -> None: ...

    def add(self, stage: Stage, now: float) -> None:
        """A stage became ready."""
        ...

    def take(self, held: Held, now: float) -> Stage | None:
        """The stage to start on a resource that is free, or None to leave it idle."""
        ...

    def finished(self, job: JobRecord) -> None:
        """A job is over, its stages will not come back."""
        ...


class Queue:
    """Ready stages by key, smallest first. A stage that left its state of readiness is skipped."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, int, Stage]] = []
        self._sequence = 0

    def push(self, key: Any, stage: Stage) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (key, self._sequence, stage.ticket, stage))

    def head(self) -> tuple[Any, Stage] | None:
        """The smallest key and its stage."""
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
