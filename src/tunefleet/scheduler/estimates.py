"""Estimates of stage durations from finished stages, per lane."""

from __future__ import annotations

from typing import Any

from tunefleet.core.stage import WorkKind

#: Weight of the newest duration in a running mean: batches of one lane are similar.
_NEWEST = 0.4
#: Initial guess in seconds; only ratios between lanes matter until a stage has finished.
_UNKNOWN_S = 1.0


class Estimates:
    """Mean durations in seconds per (lane, stage kind). A lane without history uses the mean of its
    job, a job without history the mean of all jobs."""

    def __init__(self) -> None:
        self._of_lane: dict[tuple[str, str, WorkKind], float] = {}
        self._of_job: dict[tuple[str, WorkKind], float] = {}
        self._of_kind: dict[WorkKind, float] = {}

    def learn(self, job_id: str, task_id: str, kind: WorkKind, seconds: float) -> None:
        _mix(self._of_lane, (job_id, task_id, kind), seconds)
        _mix(self._of_job, (job_id, kind), seconds)
        _mix(self._of_kind, kind, seconds)

    def seconds(self, job_id: str, task_id: str, kind: WorkKind) -> float:
        estimate = self._of_lane.get((job_id, task_id, kind))
        if estimate is None:
            estimate = self._of_job.get((job_id, kind))
        if estimate is None:
            estimate = self._of_kind.get(kind, _UNKNOWN_S)
        return estimate

    def forget(self, job_id: str, task_ids: list[str], order: tuple[WorkKind, ...]) -> None:
        for kind in order:
            self._of_job.pop((job_id, kind), None)
            for task_id in task_ids:
                self._of_lane.pop((job_id, task_id, kind), None)


def _mix(table: dict[Any, float], key: Any, seconds: float) -> None:
    old = table.get(key)
    table[key] = seconds if old is None else old + _NEWEST * (seconds - old)
