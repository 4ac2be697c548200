"""Where the time of a run went: by stage and step, and along its search."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tunefleet.core.job import Job
from tunefleet.core.result import CurvePoint
from tunefleet.core.stage import ProfileResult, StageRun
from tunefleet.core.step import StepRun
from tunefleet.store import Store


def wall_of(
    steps: Iterable[StepRun], runs: Sequence[StageRun], searched_s: float
) -> dict[str, float]:
    """Seconds by stage and step: stages that run at once count each. `other` is what a search of
    `searched_s` took beyond its stages."""
    wall = defaultdict[str, float](float)
    for step in steps:
        wall[str(step.key.kind)] += step.seconds
    for run in runs:
        wall[str(run.key.kind)] += run.seconds
    wall["other"] = max(0.0, searched_s - BusyTime(runs).whole_s)
    return dict(wall)


class BusyTime:
    """The time in which at least one of the stages of a search ran."""

    def __init__(self, runs: Iterable[StageRun]) -> None:
        #: When each period begins and ends, and the seconds of those before.
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._before: list[float] = []
        self.whole_s = 0.0
        for run in sorted(runs, key=lambda run: run.started_at):
            end = run.started_at + run.seconds
            if not self._ends or run.started_at > self._ends[-1]:
                self._begins.append(run.started_at)
                self._ends.append(end)
                self._before.append(self.whole_s)
            self._ends[-1] = max(self._ends[-1], end)
            self.whole_s = self._before[-1] + self._ends[-1] - self._begins[-1]

    def at(self, moment: float) -> float:
        """Its seconds until a moment of a stage, or the end of one."""
        period = bisect_right(self._begins, moment) - 1
        return self._before[period] + min(moment, self._ends[period]) - self._begins[period]


def tuning_curve(store: Store, job: Job) -> tuple[CurvePoint, ...]:
    """After each profile stage: trials so far, the time in which stages ran, and the tasks' summed
    latency.

    The sum is None until every task has a measurement of this job.
    """
    weights = {t.task.task_id: t.weight for t in store.work.tasks(job.job_id)}
    best: dict[str, float] = {}
    points: list[CurvePoint] = []
    trials = 0
    runs = store.work.stages(job.job_id)
    busy = BusyTime(runs)
    for run in runs:
        if not isinstance(run.result, ProfileResult):
            trials += len(getattr(run.result, "failed", ()))
            continue
        trials += len(run.result.measured) + len(run.result.failed)
        latencies = [p.measurement.latency_s for p in run.result.measured]
        if latencies:
            task_id = run.key.task_id
            best[task_id] = min([*latencies, best.get(task_id, float("inf"))])
        total = sum(best[i] * w for i, w in weights.items()) if len(best) == len(weights) else None
        latency_ms = total * 1e3 if total is not None else None
        seconds = busy.at(run.started_at + run.seconds)
        points.append(CurvePoint(trials=trials, wall_s=seconds, latency_ms=latency_ms))
    return tuple(points)
