"""The plan of a collection job: it records trials of every task instead of tuning a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tunefleet.core.budget import Budget
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import StageRun
from tunefleet.core.task import WeightedTask
from tunefleet.scheduler.tuning_plan import LaneProgress, TuningPlan


class CollectionPlan(TuningPlan):
    """Every task gets `per_task` trials; the task with the fewest goes first."""

    def __init__(
        self,
        tasks: Sequence[WeightedTask],
        search: SearchSettings,
        per_task: int,
        *,
        committed: Iterable[StageRun] = (),
        elapsed_s: float = 0.0,
        now: float = 0.0,
    ) -> None:
        budget = Budget(trials=per_task * max(1, len(tasks)))
        super().__init__(
            tasks, budget, search, known={}, committed=committed, elapsed_s=elapsed_s, now=now
        )
        self._per_task = per_task

    def next_lane(self, now: float) -> str | None:
        self._now = now
        waiting = [
            (lane.trials, task_id)
            for task_id, lane in self.progress.items()
            if task_id not in self._busy and self._missing(lane) > 0
        ]
        if not waiting:
            return None
        _, chosen = min(waiting)
        lane = self.progress[chosen]
        lane.plan_round(min(self._search.batch, self._missing(lane)))
        self._busy.add(chosen)
        return chosen

    def ended(self, now: float) -> str:
        self._now = now
        if not self.progress:
            return "its tasks are those of other networks, or not wanted"
        missing = any(self._missing(lane) > 0 for lane in self.progress.values())
        return "" if missing else "every task has its trials"

    def rounds_left(self, task_id: str) -> float:
        return math.ceil(self._missing(self.progress[task_id]) / self._search.batch)

    def _missing(self, lane: LaneProgress) -> int:
        """Trials that are neither done nor expected from a round in flight."""
        return 0 if lane.exhausted else max(0, self._per_task - lane.trials - lane.expected)
