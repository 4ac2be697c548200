"""The thesis's three policies: sequential, synchronous, interleaved."""

from __future__ import annotations

from tunefleet.core.stage import STAGE_ORDER, WorkKind
from tunefleet.core.step import StepKind
from tunefleet.scheduler.lanes import JobRecord, Pool, Stage
from tunefleet.scheduler.names import INTERLEAVED, SEQUENTIAL, SYNCHRONOUS
from tunefleet.scheduler.policies._base import PolicyView, Queues
from tunefleet.scheduler.transitions import StageState


class _Plain:
    """Defaults of policies without estimates. As in the thesis, lanes do not look ahead."""

    _view: PolicyView
    lookahead = False

    def bind(self, view: PolicyView) -> None:
        self._view = view

    def add(self, stage: Stage, now: float) -> None:
        pass

    def hurries(self, job: JobRecord, now: float) -> bool:
        return False

    def done(self, stage: Stage, seconds: float) -> None:
        pass

    def finished(self, job: JobRecord) -> None:
        pass


class Interleaved(_Plain):
    """Round robin: one first-come-first-served queue per pool (Listing 2 of the thesis)."""

    name = INTERLEAVED
    gated = False

    def __init__(self) -> None:
        self._queues = Queues()

    def add(self, stage: Stage, now: float) -> None:
        self._queues[stage.pool].push(0, stage)

    def take(self, pool: Pool, now: float) -> Stage | None:
        return self._queues[pool].pop()


class Sequential(_Plain):
    """One job at a time and one stage at a time, as without a scheduler (Listing 3). Jobs of equal
    priority run in the order of submission."""

    name = SEQUENTIAL
    gated = True

    def take(self, pool: Pool, now: float) -> Stage | None:
        if self._view.running:
            return None
        waiting = (job for job in self._view.jobs.values() if not job.paused)
        current = max(waiting, key=lambda job: job.request.priority, default=None)
        if current is None:
            return None
        # An open round continues before another lane starts one.
        ready = [s for s in current.stages() if s.state is StageState.READY]
        furthest = max(ready, key=lambda s: s.position, default=None)
        return furthest if furthest is not None and furthest.pool == pool else None


class Synchronous(_Plain):
    """All jobs run the same kind of stage together (Listing 4): the worst case, for comparison."""

    name = SYNCHRONOUS
    gated = True

    def __init__(self) -> None:
        self._queues: dict[WorkKind, Queues] = {k: Queues() for k in (*StepKind, *STAGE_ORDER)}
        self._phase: WorkKind | None = None

    def add(self, stage: Stage, now: float) -> None:
        self._queues[stage.kind][stage.pool].push(0, stage)

    def take(self, pool: Pool, now: float) -> Stage | None:
        if not self._view.running and (self._phase is None or self._queues[self._phase].empty):
            waiting = (kind for kind, queues in self._queues.items() if not queues.empty)
            self._phase = next(waiting, None)
        return None if self._phase is None else self._queues[self._phase][pool].pop()
