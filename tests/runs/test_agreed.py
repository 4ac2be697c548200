"""What is agreed ends a search, and is judged on the module that is delivered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.jobs import SETTINGS
from tunefleet import BenchmarkContext, Session, tune
from tunefleet.core.agreement import AgreementOutcome
from tunefleet.core.events import JobEnded, JobOpened, Note, PhaseStarted
from tunefleet.core.phases import JUDGED_PHASES
from tunefleet.core.result import RunResult
from tunefleet.core.statistics import median
from tunefleet.core.step import Comparison, StepKind
from tunefleet.errors import JobError
from tunefleet.runs.jobs import list_jobs
from tunefleet.scheduler import job_plan
from tunefleet.stages import runner
from tunefleet.stages.measure import TUNED

from ..networks import small_beside

pytestmark = pytest.mark.tvm


def tuned(home: Path, events: list[Any] | None = None, **asked: Any) -> RunResult:
    """The result of a small network."""
    heard: list[Any] = [] if events is None else events
    [outcome] = tune(
        [small_beside(home)],
        context=BenchmarkContext("cpu", threads=1, home=home),
        observer=lambda index: heard.append,
        settings=SETTINGS,
        **asked,
    )
    if outcome.error is not None:
        raise outcome.error
    assert outcome.result is not None
    return outcome.result


@pytest.fixture(autouse=True)
def ran(monkeypatch: pytest.MonkeyPatch) -> list[StepKind]:
    """The steps that run, in their order. No other program disturbs what they measure."""
    kinds: list[StepKind] = []

    def counted(kind: StepKind, step: Any) -> Any:
        def run(place: Any, request: Any) -> Any:
            kinds.append(kind)
            result, remarks = step(place, request)
            if kind in (StepKind.BASELINE, StepKind.MEASURE):
                result = replace(result, comparisons=tuple(map(undisturbed, result.comparisons)))
            return result, remarks

        return run

    steps = {kind: counted(kind, step) for kind, step in runner.STEPS.items()}
    monkeypatch.setattr(runner, "STEPS", steps)
    return kinds


def undisturbed(comparison: Comparison) -> Comparison:
    medians = {name: (median(of),) * len(of) for name, of in comparison.rounds.items()}
    return replace(comparison, rounds=medians, disturbed=0.0, moved=0.0)


@pytest.fixture
def slow_first(ran: list[StepKind], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first delivery is measured to take a second."""
    change_first(ran, monkeypatch, 1.0)


@pytest.fixture
def slow_and_poor_first(ran: list[StepKind], monkeypatch: pytest.MonkeyPatch) -> None:
    """And its search had found much less than is known by now."""
    change_first(ran, monkeypatch, 10.0)


def change_first(ran: list[StepKind], monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    def measure(place: Any, request: Any) -> Any:
        result, remarks = real(place, request)
        if ran.count(StepKind.MEASURE) == 1:
            comparisons = tuple(map(slow, result.comparisons))
            estimated_s = factor * result.estimated_s
            result = replace(result, comparisons=comparisons, estimated_s=estimated_s)
        return result, remarks

    def slow(comparison: Comparison) -> Comparison:
        seconds = (1.0,) * len(comparison.rounds[TUNED])
        return replace(comparison, rounds=comparison.rounds | {TUNED: seconds})

    real: Any = runner.STEPS[StepKind.MEASURE]
    monkeypatch.setitem(runner.STEPS, StepKind.MEASURE, measure)


def test_a_speedup_ends_the_search_once_it_is_met(tmp_path: Path) -> None:
    result = tuned(tmp_path, trials=40, speedup=0.01)
    assert result.agreement is not None
    assert AgreementOutcome.MET is result.agreement.outcome
    assert 0 < result.trials < 40
    assert "is reached" in (result.stopped or "")
    began = {step.step: step.started_at for step in result.steps}
    assert began["check"] < began["baseline"] < began["build finalists"]
    [job] = list_jobs(tmp_path)
    assert result.agreement.text == job["agreement"]["text"]
    again = tuned(tmp_path, trials=41, speedup=0.01)
    assert again.agreement is not None
    assert again.trials == 0
    assert AgreementOutcome.FROM_RECORDS is again.agreement.outcome


def test_an_artifact_that_has_what_is_agreed_is_the_answer(
    tmp_path: Path, ran: list[StepKind]
) -> None:
    first = tuned(tmp_path, trials=8)
    assert first.tuned_ms is not None
    reached_ms, done = first.tuned_ms.median, len(ran)
    events: list[Any] = []
    answer = tuned(tmp_path, events, trials=9, target_latency_ms=2 * reached_ms)
    assert answer.agreement is not None
    assert AgreementOutcome.FROM_RECORDS is answer.agreement.outcome
    assert (first.run, 0, done) == (answer.run, answer.trials, len(ran))
    assert answer.job not in (None, first.job)
    assert answer.tuned_ms == first.tuned_ms
    assert [type(event) for event in events][-1] is JobEnded
    job = list_jobs(tmp_path)[0]
    assert (job["job"], job["state"], job["trials"]) == (answer.job, "succeeded", 0)
    tuned(tmp_path, trials=10, target_latency_ms=reached_ms / 1e3)  # that is not met: a search
    assert len(ran) > done


@pytest.mark.long
def test_a_disturbed_baseline_is_measured_again_while_the_search_goes_on(
    tmp_path: Path, ran: list[StepKind], monkeypatch: pytest.MonkeyPatch
) -> None:
    def baseline(place: Any, request: Any) -> Any:
        result, remarks = real(place, request)
        if ran.count(StepKind.BASELINE) < 3:
            taken = [replace(each, disturbed=0.5) for each in result.comparisons]
            result = replace(result, comparisons=tuple(taken))
        return result, remarks

    real: Any = runner.STEPS[StepKind.BASELINE]
    monkeypatch.setitem(runner.STEPS, StepKind.BASELINE, baseline)
    monkeypatch.setattr(job_plan, "FIRST_AGAIN_S", 0.1)
    result = tuned(tmp_path, trials=40, speedup=0.01)
    assert ran.count(StepKind.BASELINE) == 3
    assert result.agreement is not None
    assert AgreementOutcome.MET is result.agreement.outcome
    assert 0 < result.trials < 40
    assert "is reached" in (result.stopped or "")


@pytest.mark.long
def test_a_search_goes_on_where_only_its_estimate_is_low_enough(
    tmp_path: Path, ran: list[StepKind], slow_first: None
) -> None:
    events: list[Any] = []
    result = tuned(tmp_path, events, trials=40, target_latency_ms=500.0)
    notes = [event.text for event in events if isinstance(event, Note)]
    assert "measured: an inference takes 2 times as long as agreed; the search goes on" in notes
    assert (ran.count(StepKind.PUBLISH), ran[-1]) == (1, StepKind.PUBLISH)
    assert [event.is_judged for event in events if isinstance(event, JobOpened)] == [True]
    phases = [event.name for event in events if isinstance(event, PhaseStarted)]
    judged, last = JUDGED_PHASES[-2:]
    assert (judged in phases[:-1], phases[-1]) == (True, last)
    assert result.agreement is not None
    if ran.count(StepKind.COMPILE) == 1:  # what else was found was no better
        assert (result.stopped, result.trials) == ("all 40 trials are done", 40)
        assert AgreementOutcome.NOT_MET is result.agreement.outcome
    else:
        assert AgreementOutcome.MET is result.agreement.outcome
    assert len(list((tmp_path / "artifacts").iterdir())) == 1


@pytest.mark.long
def test_a_session_delivers_again_what_was_found_since(
    tmp_path: Path, ran: list[StepKind], slow_and_poor_first: None
) -> None:
    with Session(BenchmarkContext("cpu", threads=1, home=tmp_path)) as session:
        session.from_network(small_beside(tmp_path))
        session.autotune(trials=40, target_latency_ms=500.0, settings=SETTINGS)
        assert (ran.count(StepKind.COMPILE), ran.count(StepKind.MEASURE)) == (2, 2)
        assert StepKind.PUBLISH not in ran
        result = session.build().save().evaluate(rounds=2).result()
    assert (ran.count(StepKind.COMPILE), ran.count(StepKind.MEASURE)) == (2, 3)
    assert result.agreement is not None
    assert AgreementOutcome.MET is result.agreement.outcome


def test_nothing_is_delivered_that_loses_more_than_is_agreed(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="at most 1e-12 is agreed; nothing is delivered instead"):
        tuned(tmp_path, trials=4, most_lost=1e-12)
    [job] = list_jobs(tmp_path)
    assert (job["state"], job["agreement"]["outcome"]) == ("failed", "cannot be met")
    assert not list((tmp_path / "artifacts").glob("*"))
