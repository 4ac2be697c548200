"""A search goes on until the module that it leads to has what is agreed, as it is measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.job import JobState
from tunefleet.core.step import DELIVERY, PREPARATION, WINNERS, StepKind
from tunefleet.scheduler.job_plan import (
    FIRST_AGAIN_S,
    JUDGED,
    LEAST_GAIN,
    MOST_AGAIN,
    CloseJob,
    JobPlan,
    JobProgress,
    JudgedDelivery,
    SearchTasks,
    TakeSteps,
)

BEFORE = (*PREPARATION, StepKind.BASELINE)
PLAN = JobPlan(before=BEFORE, judges=True)
PREPARED = JobProgress(frozenset(BEFORE), agreed_s=2e-3)
#: A search that ended since its estimate was low enough, and a delivery that was measured.
REACHED = replace(PREPARED, searched=True, trials=8, estimated_s=1.9e-3, reached=True)
DELIVERED = replace(REACHED, done=frozenset({*BEFORE, *JUDGED}))
AGAIN = TakeSteps((*BEFORE, *JUDGED), frozenset(JUDGED))
#: All but what is published is done.
PUBLISH = TakeSteps((*BEFORE, *WINNERS, *DELIVERY))


def judged(progress: JobProgress, estimated_s: float | None, excess: float | None) -> JobProgress:
    return replace(progress, judged=JudgedDelivery(estimated_s, excess))


def test_the_source_framework_is_measured_before_the_search() -> None:
    assert TakeSteps(BEFORE) == PLAN.following(JobProgress(frozenset(PREPARATION)))
    assert SearchTasks(2e-3) == PLAN.following(PREPARED)


def test_a_disturbed_baseline_is_measured_again_between_rounds() -> None:
    disturbed = replace(PREPARED, agreed_s=None, is_disturbed=True)
    lengths = [PLAN.following(replace(disturbed, again=n)) for n in range(MOST_AGAIN + 1)]
    seconds = [FIRST_AGAIN_S * 2**n for n in range(MOST_AGAIN)]
    assert lengths == [SearchTasks(None, each) for each in (*seconds, None)]
    measured_again = TakeSteps(BEFORE, frozenset({StepKind.BASELINE}))
    assert PLAN.following(replace(disturbed, pauses=True)) == measured_again
    assert PLAN.following(replace(PREPARED, again=1)) == SearchTasks(2e-3)


def test_a_search_that_seems_to_have_what_is_agreed_is_delivered_and_not_published() -> None:
    assert TakeSteps((*BEFORE, *JUDGED)) == PLAN.following(REACHED)
    assert StepKind.PUBLISH not in JUDGED


@pytest.mark.parametrize("excess", [0.9, 1.0, None])
def test_what_is_met_or_cannot_be_judged_is_published(excess: float | None) -> None:
    assert PLAN.following(judged(DELIVERED, 1.9e-3, excess)) == PUBLISH


@pytest.mark.parametrize(
    ("until_s", "excess"),
    [
        (1.9e-3 / 1.25, 1.25),
        # Measured so little above what is agreed that another delivery would tell nothing.
        (1.9e-3 * (1 - LEAST_GAIN), 1.001),
    ],
)
def test_a_search_goes_on_with_its_estimate_corrected(until_s: float, excess: float) -> None:
    assert SearchTasks(until_s) == PLAN.following(judged(DELIVERED, 1.9e-3, excess))


def test_a_better_module_is_made_of_what_was_found_since() -> None:
    better = replace(judged(DELIVERED, 1.9e-3, 1.25), estimated_s=1.5e-3)
    assert PLAN.following(better) == AGAIN
    # Also where the budget ended before the corrected estimate was reached.
    assert PLAN.following(replace(better, estimated_s=1.7e-3, reached=False)) == AGAIN


@pytest.mark.parametrize("estimated_s", [1.9e-3, 1.88e-3, 2.5e-3, None])
def test_a_budget_that_ends_without_a_gain_leaves_the_best_so_far(
    estimated_s: float | None,
) -> None:
    ended = replace(judged(DELIVERED, 1.9e-3, 1.25), estimated_s=estimated_s, reached=False)
    assert PLAN.following(ended) == PUBLISH


def test_no_search_begins_after_the_deadline() -> None:
    late = replace(judged(DELIVERED, 1.9e-3, 1.25), late=True)
    assert PLAN.following(late) == PUBLISH


def test_a_job_that_records_alone_were_enough_for_does_not_expire() -> None:
    late = replace(REACHED, trials=0, late=True)
    assert TakeSteps((*BEFORE, *JUDGED)) == PLAN.following(late)
    delivered = replace(DELIVERED, trials=0, late=True, searched=False, reached=False)
    assert PLAN.following(judged(delivered, 1.9e-3, 0.9)) == PUBLISH
    assert isinstance(PLAN.following(replace(PREPARED, late=True)), CloseJob)


def test_another_process_goes_on_where_the_last_delivery_was() -> None:
    unmet = judged(replace(DELIVERED, searched=False, estimated_s=None, reached=False), 2e-3, 1.6)
    assert SearchTasks(2e-3 / 1.6) == PLAN.following(unmet)
    for excess in (0.8, None):
        assert PLAN.following(judged(unmet, 2e-3, excess)) == PUBLISH


def test_a_network_without_tasks_is_delivered_once() -> None:
    nothing = replace(DELIVERED, estimated_s=0.0)
    assert PLAN.following(judged(nothing, 0.0, 1.5)) == PUBLISH


def test_steps_that_are_asked_for_one_by_one_end_no_search_and_begin_none() -> None:
    unmet = judged(DELIVERED, 1.9e-3, 1.25)
    assert SearchTasks(1.9e-3 / 1.25) == PLAN.following(unmet, StepKind.SELECT_WINNERS)
    assert PLAN.following(unmet, StepKind.VERIFY) is None
    again = replace(unmet, done=unmet.done - {StepKind.MEASURE})
    without = frozenset({StepKind.PUBLISH})
    steps = TakeSteps((*BEFORE, *JUDGED))
    assert steps == PLAN.following(again, StepKind.MEASURE, without)


@given(
    floor_s=st.floats(1e-4, 4e-3),
    factor=st.floats(0.5, 4.0),
    gains=st.lists(st.floats(0.0, 0.9), max_size=40),
)
def test_every_way_ends(floor_s: float, factor: float, gains: list[float]) -> None:
    """The search finds less and less, the module takes `factor` times as long as estimated."""
    best_s, left = floor_s + 10e-3, list(gains)
    progress, deliveries = PREPARED, []
    while True:
        match PLAN.following(progress):
            case SearchTasks(until_s):
                assert until_s is not None
                while left and best_s > until_s:
                    best_s = floor_s + (best_s - floor_s) * left.pop()
                progress = replace(
                    progress,
                    searched=True,
                    trials=8,
                    estimated_s=best_s,
                    reached=best_s <= until_s,
                )
            case TakeSteps(kinds) if StepKind.PUBLISH not in kinds:
                deliveries.append(best_s)
                done = progress.done | set(kinds)
                progress = judged(replace(progress, done=done), best_s, best_s * factor / 2e-3)
            case TakeSteps(kinds):
                progress = replace(progress, done=progress.done | set(kinds))
            case end:
                break
    assert CloseJob(JobState.SUCCEEDED) == end
    steps = pairwise(deliveries)
    assert all(later <= earlier * (1 - LEAST_GAIN) for earlier, later in steps)
    if best_s * factor > 2e-3:  # not met: nothing was left to try
        assert not left


def test_a_precision_that_loses_more_than_is_agreed_is_refused_before_the_search() -> None:
    plan = JobPlan(most_lost=1e-3)
    prepared = JobProgress(frozenset(PREPARATION), difference=1e-3)
    assert SearchTasks() == plan.following(prepared)
    refused = plan.following(replace(prepared, difference=0.004))
    assert isinstance(refused, CloseJob)
    assert JobState.FAILED is refused.state
    assert "differ by 0.004" in refused.reason
    assert "at most 0.001 is agreed" in refused.reason
