"""What earlier runs of a home say of the next one: how long its phases may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.phases import Forecast, first_round_s, phase_seconds
from tunefleet.core.stage import StageKind
from tunefleet.store import Store, each_job

#: The latest runs that are asked.
_RUNS = 5
#: Longer than any search that is asked for its stages, in seconds.
_DAY_S = 86_400.0
#: Jobs that are looked at.
_LATEST = 300


class EarlierRuns:
    """The latest delivered runs of a home, read from its store once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest = list(islice(each_job(store.jobs, state=JobState.SUCCEEDED), _LATEST))
        self._known: dict[tuple[object, ...], Forecast] = {}

    def alike(self, spec: JobSpec) -> list[Job]:
        """Those on the same target and device, newest first."""
        return [job for job in self._latest if _alike(job.spec, spec)]

    def of(self, spec: JobSpec) -> Forecast:
        """What the runs of the same network say of phases and trials."""
        name = (spec.network.name, spec.target, spec.device, spec.tenant)
        if name not in self._known:
            self._known[name] = self._of(spec)
        return self._known[name]

    def _of(self, spec: JobSpec) -> Forecast:
        same = [job for job in self.alike(spec) if job.spec.network.name == spec.network.name]
        same = same[:_RUNS]
        summaries = [_mapping(self._store.jobs.summary(job.job_id)) for job in same]
        walls = [_seconds(summary.get("wall")) for summary in summaries]
        trials = sum(_number(summary.get("trials")) for summary in summaries)
        if not trials:
            return Forecast(phase_seconds(walls))
        tuned_s = sum(job.elapsed_s for job in same)
        work_s = sum(wall.get(kind, 0.0) for wall in walls for kind in StageKind)
        return Forecast(phase_seconds(walls), tuned_s / trials, work_s=work_s / trials or None)


def forecast_of(store: Store, spec: JobSpec) -> Forecast:
    """From the latest delivered runs on the same target and device; phases and trials are those of
    runs of the same network."""
    runs = EarlierRuns(store)
    alike = runs.alike(spec)
    same = [job for job in alike if job.spec.network.name == spec.network.name]
    spans = (
        span
        for job in (same or alike)[:1]
        for span in store.work.stages_between(job.created_at, job.created_at + _DAY_S)
        if span.key.job_id == job.job_id
    )
    return replace(runs.of(spec), round_s=first_round_s(spans))


def _alike(one: JobSpec, other: JobSpec) -> bool:
    place = (one.target, one.device, one.tenant)
    return place == (other.target, other.device, other.tenant)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _seconds(wall: Any) -> dict[str, float]:
    return {str(kind): float(s) for kind, s in _mapping(wall).items() if _number(s) or s == 0}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
