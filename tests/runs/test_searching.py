"""What a job's search is submitted with."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.store import values as v
from tunefleet.core.job import JobTerms
from tunefleet.core.phases import PHASES, Forecast
from tunefleet.core.settings import SearchSettings, TuneSettings
from tunefleet.core.step import DELIVERY, WINNERS
from tunefleet.fleet.clock import now
from tunefleet.runs.searching import JobSearch
from tunefleet.scheduler.job_plan import SearchTasks, plan_of
from tunefleet.store import MemoryStore


@pytest.mark.parametrize(
    ("expected_s", "forecast"),
    [
        (100.0, Forecast()),
        (75.0, Forecast(dict.fromkeys(PHASES, 5.0))),
        (50.0, Forecast(dict.fromkeys(PHASES, 30.0))),
    ],
)
def test_it_ends_early_enough_for_its_delivery(expected_s: float, forecast: Forecast) -> None:
    store = MemoryStore()
    settings = TuneSettings(search=SearchSettings(pretrained=""))
    spec = replace(v.make_spec(), terms=JobTerms(deadline=time.time() + 100.0), settings=settings)
    job = store.jobs.open(spec, job_id="job", now=1.0)
    store.work.put_tasks("job", [v.make_task()])
    fleet: Any = SimpleNamespace(store=store, place=SimpleNamespace(models=None))
    run: Any = SimpleNamespace(
        job=job, checked=SimpleNamespace(peak_gflops=None), plan=plan_of(job.spec)
    )
    search = JobSearch(fleet, run, tuple, lambda event: None, lambda job, budget: None)
    live = search.begin(SearchTasks(), forecast, lambda ending: ())
    plan: Any = live.request.plan
    assert (plan.ended(now() + expected_s - 2), plan.ended(now() + expected_s + 2)) == (
        "",
        "its deadline is reached",
    )
    assert live.request.deadline == pytest.approx(now() + 100.0, abs=1.0)
    assert live.request.following == (*WINNERS, *DELIVERY)
