"""What earlier runs of a home say of the next one: how long its phases may take."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from tunefleet.core.job import JobSpec, JobState
from tunefleet.core.phases import Forecast, first_round_s, phase_seconds
from tunefleet.store import Store, each_job

#: The latest runs that are asked.
_RUNS = 5
#: Longer than any search that is asked for its stages, in seconds.
_DAY_S = 86_400.0
#: Jobs that are looked at.
_LATEST = 300


def forecast_of(store: Store, spec: JobSpec) -> Forecast:
    """From the latest delivered runs on the same target and device; phases and trials are those of
    runs of the same network."""
    latest_jobs = islice(each_job(store.jobs, state=JobState.SUCCEEDED), _LATEST)
    alike = [job for job in latest_jobs if _alike(job.spec, spec)]
    same = [job for job in alike if job.spec.network.name == spec.network.name][:_RUNS]
    summaries = [_mapping(store.jobs.summary(job.job_id)) for job in same]
    walls = [_seconds(summary.get("wall")) for summary in summaries]
    trials = sum(_number(summary.get("trials")) for summary in summaries)
    tuned_s = sum(job.elapsed_s for job in same)
    latest = (same or alike)[:1]
    spans = (
        span
        for job in latest
        for span in store.work.stages_between(job.created_at, job.created_at + _DAY_S)
        if span.key.job_id == job.job_id
    )
    return Forecast(
        phase_seconds(walls), tuned_s / trials if trials else None, first_round_s(spans)
    )


def _alike(one: JobSpec, other: JobSpec) -> bool:
    place = (one.target, one.device, one.tenant)
    return place == (other.target, other.device, other.tenant)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _seconds(wall: Any) -> dict[str, float]:
    return {str(kind): float(s) for kind, s in _mapping(wall).items() if _number(s) or s == 0}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
