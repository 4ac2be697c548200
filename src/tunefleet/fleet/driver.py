"""The simplest driver: one job, one stage at a time, until the budget ends.

It holds no state that the store does not: killed at any moment and started again, it goes on with
the stage that was not committed.
"""

from __future__ import annotations

import time

from tunefleet.core.allocation import LaneState, first_batch, next_lane
from tunefleet.core.events import (
    Event,
    LaneUpdated,
    Observer,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.identity import Tier
from tunefleet.core.job import Job
from tunefleet.core.stage import (
    STAGE_ORDER,
    BuildResult,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageRun,
    UpdateResult,
)
from tunefleet.core.task import WeightedTask
from tunefleet.fleet.machine import Machine
from tunefleet.fleet.stages import Lane, StageRunner
from tunefleet.store import Store


class _LaneProgress:
    """One lane as the driver sees it; rebuilt from committed stages by `absorb`."""

    def __init__(self, weighted: WeightedTask, known_s: float | None) -> None:
        self.weighted = weighted
        self.known_s = known_s
        self.history: list[float | None] = []
        self.iteration = 0
        self.done: set[StageKind] = set()
        self.seconds = 0.0
        self.trials = 0
        self.failed = 0
        self.exhausted = False
        self._best = known_s

    @property
    def open_round(self) -> bool:
        return bool(self.done)

    def absorb(self, run: StageRun) -> None:
        """Take a committed stage into account."""
        if run.key.iteration < 0:  # the first model, before any round
            return
        self.done.add(run.key.kind)
        self.iteration = run.key.iteration
        self.seconds += run.seconds
        result = run.result
        if isinstance(result, SelectResult):
            self.exhausted = self.exhausted or result.exhausted
        elif isinstance(result, BuildResult):
            self._add(len(result.failed), len(result.failed), [])
        elif isinstance(result, ProfileResult):
            latencies = [m.latency_s for _, m, _ in result.measured]
            self._add(len(latencies) + len(result.failed), len(result.failed), latencies)
        elif isinstance(result, UpdateResult):
            self.history.append(self._best)
            self.iteration += 1
            self.done = set()
        if self.exhausted and isinstance(result, SelectResult) and not result.candidates:
            self.history.append(self._best)
            self.done = set()

    def _add(self, trials: int, failed: int, latencies: list[float]) -> None:
        self.trials += trials
        self.failed += failed
        self._best = min([*latencies, *([self._best] if self._best else [])], default=None)

    @property
    def state(self) -> LaneState:
        task = self.weighted.task
        return LaneState(
            task_id=task.task_id,
            weight=self.weighted.weight,
            flops=task.flops,
            history=tuple(self.history),
            seconds=self.seconds,
            exhausted=self.exhausted,
        )

    @property
    def event(self) -> Event:
        best = self._best
        return LaneUpdated(self.weighted, self.trials, self.failed, best, self.known_s)

    @property
    def best_s(self) -> float | None:
        return self._best


class Driver:
    """Drives the lanes of one job on one machine."""

    def __init__(self, store: Store, machine: Machine, job: Job, observer: Observer) -> None:
        self._store = store
        self._job = job
        self._observer = observer
        self._runner = StageRunner(
            store, machine, lambda key, done, total: observer(StageProgressed(key, done, total))
        )
        self._lanes: dict[str, _LaneProgress] = {}
        for weighted in store.tasks(job.job_id):
            lane = Lane(job, weighted.task)
            known = self._runner.known_records(lane, Tier.EXACT, 1)
            best = known[0].measurement.latency_s if known else None
            self._lanes[weighted.task.task_id] = _LaneProgress(weighted, best)
        for run in store.stages(job.job_id):
            self._lanes[run.key.task_id].absorb(run)

    @property
    def trials(self) -> int:
        return sum(lane.trials for lane in self._lanes.values())

    def estimated_latency_s(self) -> float | None:
        """The sum of the tasks' best latencies, or None while a task has none."""
        total = 0.0
        for lane in self._lanes.values():
            if lane.best_s is None:
                return None
            total += lane.best_s * lane.weighted.weight
        return total

    def run(self) -> str:
        """Run stages until the budget ends; returns the reason in words."""
        clock = time.monotonic()
        for lane in self._lanes.values():
            self._observer(lane.event)
        self._first_model(clock)
        while True:
            elapsed = self._elapsed_s(clock)
            open_lanes = [lane for lane in self._lanes.values() if lane.open_round]
            if not open_lanes:
                reason = self._job.spec.budget.spent(
                    trials=self.trials, seconds=elapsed, latency_s=self.estimated_latency_s()
                )
                if reason:
                    return reason
                chosen = next_lane([lane.state for lane in self._lanes.values()])
                if chosen is None:
                    return "every search space is exhausted"
                open_lanes = [self._lanes[chosen.task_id]]
            self._round(open_lanes[0], clock)

    def _elapsed_s(self, clock: float) -> float:
        return self._job.elapsed_s + time.monotonic() - clock

    def _first_model(self, clock: float) -> None:
        """Learn from earlier jobs' records before the first selection."""
        lane = next(iter(self._lanes.values()), None)
        if lane is None or self._store.stages(self._job.job_id):
            return
        key = StageKey(self._job.job_id, lane.weighted.task.task_id, -1, StageKind.UPDATE)
        run = self._runner.run(Lane(self._job, lane.weighted.task), key, 0)
        self._store.commit(run, elapsed_s=self._elapsed_s(clock))

    def _round(self, lane: _LaneProgress, clock: float) -> None:
        """Run what is missing of a lane's current iteration, committing stage by stage."""
        task = lane.weighted.task
        iteration = lane.iteration
        for kind in STAGE_ORDER:
            if kind in lane.done:
                continue
            key = StageKey(self._job.job_id, task.task_id, iteration, kind)
            self._observer(StageStarted(key))
            run = self._runner.run(Lane(self._job, task), key, self._batch(lane))
            elapsed = self._elapsed_s(clock)
            self._store.commit(run, elapsed_s=elapsed)
            lane.absorb(run)
            self._observer(StageFinished(run, self.trials, elapsed))
            self._observer(lane.event)
            if kind is StageKind.SELECT and not lane.done:
                return

    def _batch(self, lane: _LaneProgress) -> int:
        settings, budget = self._job.spec.settings.search, self._job.spec.budget
        left = None if budget.trials is None else budget.trials - self.trials
        size = settings.batch
        if not lane.history:
            states = [other.state for other in self._lanes.values()]
            size = first_batch(lane.state, states, settings, left)
        return size if left is None else max(1, min(size, left))
