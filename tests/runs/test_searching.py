"""What a job's search is submitted with."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.store import values as v
from tunefleet.core.budget import Budget
from tunefleet.core.events import Event, Note, Prepared
from tunefleet.core.job import JobSpec, JobTerms
from tunefleet.core.phases import PHASES, Forecast
from tunefleet.core.settings import SearchSettings, TuneSettings
from tunefleet.core.step import DELIVERY, WINNERS
from tunefleet.fleet.clock import now
from tunefleet.runs.searching import JobSearch
from tunefleet.scheduler.job_plan import SearchTasks, plan_of
from tunefleet.store import MemoryStore


def submitted(spec: JobSpec, forecast: Forecast, events: list[Event]) -> Any:
    """The search of a job with one task, in a run without committed steps."""
    store = MemoryStore()
    spec = replace(spec, settings=TuneSettings(search=SearchSettings(pretrained="")))
    job = store.jobs.open(spec, job_id="job", now=1.0)
    store.work.put_tasks("job", [v.make_task()])
    fleet: Any = SimpleNamespace(store=store, place=SimpleNamespace(models=None))
    run: Any = SimpleNamespace(
        job=job,
        checked=SimpleNamespace(peak_gflops=None),
        plan=plan_of(job.spec),
        committed=dict,
    )
    search = JobSearch(fleet, run, tuple, events.append, lambda job, budget: None)
    return search.begin(SearchTasks(), forecast, lambda ending: ())


@pytest.mark.parametrize(
    ("expected_s", "forecast"),
    [
        (100.0, Forecast()),
        (75.0, Forecast(dict.fromkeys(PHASES, 5.0))),
        (50.0, Forecast(dict.fromkeys(PHASES, 30.0))),
    ],
)
def test_it_ends_early_enough_for_its_delivery(expected_s: float, forecast: Forecast) -> None:
    begun = now()
    spec = replace(v.make_spec(), terms=JobTerms(deadline=time.time() + 100.0))
    live = submitted(spec, forecast, [])
    plan: Any = live.request.plan
    assert (plan.ended(begun + expected_s - 2), plan.ended(begun + expected_s + 2)) == (
        "",
        "its deadline is reached",
    )
    assert live.request.deadline == pytest.approx(begun + 100.0, abs=1.0)
    assert live.request.following == (*WINNERS, *DELIVERY)


@pytest.mark.parametrize(
    ("expected_s", "step_s", "notes"),
    [
        (240.0, 7.0, 0),  # five steps, 35 s, within 15 % of the budget
        (216.0, 12.0, 1),
        (160.0, 100.0, 1),  # two thirds of it, at least
    ],
)
def test_it_leaves_time_to_the_steps_after_it(expected_s: float, step_s: float, notes: int) -> None:
    events: list[Event] = []
    spec = replace(v.make_spec(), budget=Budget(seconds=240.0))
    earliest = now()
    live = submitted(spec, Forecast(dict.fromkeys(PHASES, step_s)), events)
    latest, plan = now(), live.request.plan
    assert plan.ended(earliest + expected_s - 2) == ""
    over = f"the time of {expected_s / 60:.3g} minutes is over"
    assert plan.ended(latest + expected_s + 2) == over
    # Whoever watches sees that the search ends then.
    [prepared] = [event for event in events if isinstance(event, Prepared)]
    assert prepared.budget == Budget(seconds=expected_s)
    told = [event for event in events if isinstance(event, Note) and "leaves" in event.text]
    assert len(told) == notes
