"""How far a job is from what is agreed, by what is committed of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.store.values import make_spec
from tunefleet.core.agreement import Agreed
from tunefleet.core.budget import Budget
from tunefleet.core.job import JobSpec, JobTerms
from tunefleet.core.phases import PHASES, TUNE, Forecast
from tunefleet.core.step import Comparison, Measured, SourceMeasured, StepKind
from tunefleet.runs.judging import closing_summary, why_impossible, with_agreement
from tunefleet.scheduler.job_plan import JobProgress, JudgedDelivery

FORECAST = Forecast({phase: 5.0 for phase in PHASES if phase != TUNE})


def spec(target_s: float | None = None, **agreed: Any) -> JobSpec:
    budget = Budget(trials=8, target_latency_s=target_s)
    return replace(make_spec(), budget=budget, agreed=Agreed(**agreed))


def compared(disturbed: float = 0.0, **seconds: float) -> Comparison:
    return Comparison({name: (of,) * 6 for name, of in seconds.items()}, disturbed)


@pytest.mark.parametrize(
    ("agreed_s", "job", "disturbed"),
    [
        (2e-3, spec(speedup=2.0), 0.0),
        (1e-3, spec(1e-3, speedup=2.0), 0.0),
        (2e-3, spec(3e-3, speedup=2.0), 0.0),
        (None, spec(speedup=2.0), 0.5),
        (3e-3, spec(3e-3, speedup=2.0), 0.5),
        (None, spec(), 0.0),
    ],
)
def test_a_speedup_is_a_latency_once_the_source_framework_is_measured(
    agreed_s: float | None, job: JobSpec, disturbed: float
) -> None:
    baseline = SourceMeasured((compared(disturbed, source=1e-3), compared(disturbed, source=3e-3)))
    progress = with_agreement(JobProgress(frozenset()), job, {StepKind.BASELINE: baseline})
    assert agreed_s == progress.agreed_s


@pytest.mark.parametrize(
    ("excess", "disturbed"), [(pytest.approx(1.5), 0.0), (None, 0.5)], ids=["quiet", "disturbed"]
)
def test_a_delivery_is_judged_by_what_was_measured_of_it(excess: Any, disturbed: float) -> None:
    comparison = compared(disturbed, source=4e-3, tuned=3e-3)
    measured = Measured((comparison,), {}, estimated_s=2.5e-3)
    progress = with_agreement(
        JobProgress(frozenset()), spec(5e-3, speedup=2.0), {StepKind.MEASURE: measured}
    )
    assert JudgedDelivery(2.5e-3, excess) == progress.judged


def test_a_deadline_that_is_nearer_than_the_steps_proves_that_nothing_can_be_met() -> None:
    now = time.time()
    due = replace(spec(1e-3), terms=JobTerms(deadline=now + 30.0))
    told = "its deadline is in 30 s, and the steps around the search took 35 s in earlier runs"
    assert told == why_impossible(due, FORECAST, now, prepared=False)
    assert why_impossible(due, FORECAST, now, prepared=True) == ""
    assert why_impossible(due, Forecast(), now, prepared=False) == ""
    nothing_agreed = replace(spec(), terms=due.terms)
    assert why_impossible(nothing_agreed, FORECAST, now, prepared=False) == ""


def test_a_job_that_is_closed_before_it_can_be_judged_says_what_that_means() -> None:
    assert closing_summary(spec(), "late") == {"stopped": "late"}
    judged = {"outcome": "cannot be met", "text": "cannot be met: late", "terms": []}
    assert closing_summary(spec(1e-3), "late") == {"stopped": "late", "agreement": judged}
