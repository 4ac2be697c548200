"""The forecasts of jobs beside what came of them: what `tunefleet forecasts` shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tunefleet.core.forecast import JudgedForecast, judge_forecast
from tunefleet.core.job import Job, JobKind
from tunefleet.core.result import to_json
from tunefleet.runs.outlook import kept_forecasts
from tunefleet.runs.timeline import find_job
from tunefleet.store import Store, each_job, open_store

#: Jobs that are looked at without one named: the latest.
_LATEST = 100


def forecasts_of(home: Path, name: str = "") -> list[dict[str, Any]]:
    """The forecasts of a job, or of the latest jobs of a home, newest job first: JSON values in the
    order in which they were made. Nothing where there is no home: looking creates nothing. Raises
    InputError for a job that is unknown or ambiguous."""
    if not home.is_dir() and not name:
        return []
    store = open_store(home)
    try:
        jobs: Sequence[Job] = [find_job(store, name)] if name else _latest(store)
        return [value for job in jobs for value in _described(store, job)]
    finally:
        store.close()


def _latest(store: Store) -> list[Job]:
    tuned = (job for job in each_job(store.jobs) if job.spec.kind is JobKind.TUNE)
    return list(islice(tuned, _LATEST))


def _described(store: Store, job: Job) -> list[dict[str, Any]]:
    forecasts, outcome = kept_forecasts(store, job.job_id)
    return [
        {"job": job.job_id, "network": job.spec.network.name, "at": at, **_value(judged)}
        for at, each in forecasts
        for judged in (judge_forecast(each, outcome),)
    ]


def _value(judged: JudgedForecast) -> dict[str, Any]:
    return {**to_json(judged.forecast), "outcome": to_json(judged.outcome), "held": judged.held,
            "time_held": judged.time_held}  # fmt: skip
