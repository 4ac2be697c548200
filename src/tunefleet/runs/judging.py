"""How far a job is from what is agreed, by what is committed of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tunefleet.core.agreement import AgreementOutcome, JudgedAgreement, judge
from tunefleet.core.job import JobSpec
from tunefleet.core.phases import Forecast
from tunefleet.core.result import to_json
from tunefleet.core.step import (
    Checked,
    Imported,
    Measured,
    SourceMeasured,
    StepKind,
    StepResult,
)
from tunefleet.scheduler.job_plan import JobProgress, JudgedDelivery


def with_agreement(
    progress: JobProgress, spec: JobSpec, results: Mapping[StepKind, StepResult]
) -> JobProgress:
    """What is known of a job with what its plan is judged by; `results` are those of its steps."""
    source, measured = results.get(StepKind.BASELINE), results.get(StepKind.MEASURE)
    imported, checked = results.get(StepKind.IMPORT), results.get(StepKind.CHECK)
    difference = None
    if isinstance(imported, Imported) and isinstance(checked, Checked):
        difference = max(imported.lost, checked.difference)
    return replace(
        progress,
        agreed_s=_agreed_s(spec, source.latency_s if isinstance(source, SourceMeasured) else None),
        judged=_judged(spec, measured) if isinstance(measured, Measured) else None,
        difference=difference,
        is_disturbed=isinstance(source, SourceMeasured) and source.latency_s is None,
    )


def _agreed_s(spec: JobSpec, source_s: float | None) -> float | None:
    """The latency that is agreed, by what the source framework takes where a speed-up is; None
    where that is not known."""
    speedup, limits = spec.agreed.speedup, [spec.budget.target_latency_s]
    if speedup is not None and source_s is not None:
        limits.append(source_s / speedup)
    return min((limit for limit in limits if limit is not None), default=None)


def _judged(spec: JobSpec, measured: Measured) -> JudgedDelivery:
    from tunefleet.stages.measure import figures_of

    shapes = [figures_of(comparison, "", ()) for comparison in measured.comparisons]
    judged = judge(spec.agreement, shapes)
    return JudgedDelivery(measured.estimated_s, judged.excess if judged is not None else None)


def why_impossible(spec: JobSpec, forecast: Forecast, now: float, *, prepared: bool) -> str:
    """The proof that what is agreed cannot be met by the deadline, or "". `now` is in seconds since
    the epoch; the steps before a search of a network that is `prepared` are done."""
    deadline, steps_s = spec.terms.deadline, forecast.around_search_s(prepared=prepared)
    if deadline is None or steps_s is None or not spec.agreement.parts:
        return ""
    left_s = max(0.0, deadline - now)
    if steps_s <= left_s:
        return ""
    return (
        f"its deadline is in {left_s:.0f} s, and the steps around the search took {steps_s:.0f} s "
        "in earlier runs"
    )


def closing_summary(spec: JobSpec, reason: str) -> dict[str, Any]:
    """What the store keeps of a job that its plan closes before there is anything to judge."""
    if not spec.agreement.parts:
        return {"stopped": reason}
    outcome = AgreementOutcome.IMPOSSIBLE
    judged = JudgedAgreement(outcome=outcome, text=f"{outcome}: {reason}")
    return {"stopped": reason, "agreement": to_json(judged)}
