"""The state of a run as its events tell it: no clock, no terminal, only sums."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    JobOpened,
    LaneUpdated,
    Note,
    PhaseStarted,
    Progressed,
    StageFinished,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.stage import StageKey, StageKind, UpdateResult

_NOTES = 4

#: Rounds over which the trend of the network's latency is told.
TREND_ROUNDS = 10


@dataclass(slots=True)
class Progress:
    """What a watcher may want to know. Times are `now` of whoever calls `absorb`, in seconds."""

    network: str
    peak_gflops: float | None = None
    phase: str = ""
    step: Progressed | None = None
    job_id: str = ""
    resumed: bool = False
    budget: Budget | None = None
    lanes: dict[str, LaneUpdated] = field(default_factory=dict)
    stage: StageKey | None = None
    stage_done: tuple[int, int] | None = None
    spent: dict[StageKind, float] = field(default_factory=dict)
    #: Estimated latency of the network after each round, as soon as every task has one.
    history: list[float] = field(default_factory=list)
    rounds: int = 0
    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=_NOTES))
    warnings: int = 0
    _elapsed: tuple[float, float] | None = None
    _first: tuple[float, int] | None = None

    def absorb(self, event: Event, now: float) -> None:
        """Take an event into account."""
        match event:
            case PhaseStarted(name):
                self.phase, self.step, self.stage, self.stage_done = name, None, None, None
            case JobOpened():
                self.job_id, self.resumed, self.budget = event.job_id, event.resumed, event.budget
                self._elapsed = (event.elapsed_s, now)
            case LaneUpdated():
                self.lanes[event.weighted.task.task_id] = event
            case StageStarted(key):
                self.stage, self.stage_done = key, None
                self._first = self._first or (now, self.trials)
            case StageProgressed(key, done, total):
                self.stage, self.stage_done = key, (done, total)
            case StageFinished():
                self._finish(event, now)
            case Progressed():
                self.step = event
            case Note():
                self.notes.append(event)
                self.warnings += event.warning

    def _finish(self, event: StageFinished, now: float) -> None:
        kind = event.run.key.kind
        self.spent[kind] = self.spent.get(kind, 0.0) + event.run.seconds
        self._elapsed = (event.elapsed_s, now)
        self.stage = self.stage_done = None
        if isinstance(event.run.result, UpdateResult):
            self.rounds += 1
            latency = self.latency_s
            if latency is not None:
                self.history.append(latency)

    @property
    def trials(self) -> int:
        """Trials of the job so far, those of earlier processes included."""
        return sum(lane.trials for lane in self.lanes.values())

    @property
    def failed(self) -> int:
        return sum(lane.failed for lane in self.lanes.values())

    @property
    def measured(self) -> int:
        """Tasks that have a latency."""
        return sum(lane.best_s is not None for lane in self.lanes.values())

    @property
    def known_latency_s(self) -> float:
        """The sum of the tasks' best latencies, of those that have one."""
        return sum((lane.best_s or 0.0) * lane.weighted.weight for lane in self.lanes.values())

    @property
    def latency_s(self) -> float | None:
        """The estimated latency of the network, or None while a task has none."""
        complete = self.lanes and self.measured == len(self.lanes)
        return self.known_latency_s if complete else None

    @property
    def trend(self) -> float | None:
        """Relative change of the estimate over the last rounds (-0.05: 5 % faster)."""
        if len(self.history) < 2:
            return None
        before = self.history[max(0, len(self.history) - 1 - TREND_ROUNDS)]
        return self.history[-1] / before - 1

    def elapsed_s(self, now: float) -> float:
        """Time of the job, that of earlier processes included."""
        if self._elapsed is None:
            return 0.0
        value, at = self._elapsed
        return value + max(0.0, now - at)

    def left_s(self, now: float) -> float | None:
        """Time to the first limit of the budget at this run's rate, or None while unknown."""
        if self.budget is None:
            return None
        limits = []
        if self.budget.seconds is not None:
            limits.append(self.budget.seconds - self.elapsed_s(now))
        if self.budget.trials is not None and self._first is not None:
            at, trials = self._first
            done = self.trials - trials
            if done > 0:
                limits.append((self.budget.trials - self.trials) * (now - at) / done)
        return max(0.0, min(limits)) if limits else None

    def ranked(self) -> list[LaneUpdated]:
        """Tasks by their share of the network's latency; those without one by FLOPs, last."""
        return sorted(
            self.lanes.values(),
            key=lambda lane: (
                lane.best_s is None,
                -(lane.best_s or 0.0) * lane.weighted.weight,
                -lane.weighted.total_flops,
            ),
        )
