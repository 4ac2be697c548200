"""What comes next of a job, by what is committed of it."""

from __future__ import annotations

import pytest

from tunefleet.core.job import JobKind, JobState
from tunefleet.core.step import DELIVERY, PREPARATION, WINNERS, StepKind
from tunefleet.scheduler.job_plan import (
    EXPIRED,
    PLANS,
    CloseJob,
    JobPlan,
    JobProgress,
    SearchTasks,
    TakeSteps,
)
from tunefleet.scheduler.values import JobEnd

TUNE = PLANS[JobKind.TUNE]
ALL = (*PREPARATION, *WINNERS, *DELIVERY)
PREPARED = frozenset(PREPARATION)
EXPIRES = CloseJob(JobState.EXPIRED, EXPIRED, "give it a later deadline")


def way(plan: JobPlan) -> list[object]:
    """Everything that a plan asks for, where all of it succeeds."""
    done: frozenset[StepKind] = frozenset()
    searched = False
    asked: list[object] = []
    while True:
        asked.append(plan.following(JobProgress(done, searched, trials=1)))
        match asked[-1]:
            case TakeSteps(kinds):
                done |= set(kinds)
            case SearchTasks():
                searched = True
            case _:
                return asked


def test_the_way_of_each_kind_of_job() -> None:
    end = CloseJob(JobState.SUCCEEDED)
    assert [TakeSteps(PREPARATION), SearchTasks(), TakeSteps(ALL), end] == way(TUNE)
    built = TakeSteps((*PREPARATION, *DELIVERY))
    assert [TakeSteps(PREPARATION), built, end] == way(PLANS[JobKind.BUILD])
    assert [TakeSteps((StepKind.SPLIT,)), SearchTasks(), end] == way(PLANS[JobKind.COLLECT])


def test_every_kind_of_job_has_a_plan() -> None:
    assert set(JobKind) == set(PLANS)


def test_a_job_goes_on_where_another_process_left_it() -> None:
    assert TUNE.following(JobProgress(PREPARED)) == SearchTasks()
    almost = frozenset(ALL) - {StepKind.MEASURE}
    assert TUNE.following(JobProgress(almost, searched=True)) == TakeSteps(ALL)


def test_lost_files_of_a_preparation_are_made_again_first() -> None:
    lost = JobProgress(frozenset(ALL) - {StepKind.IMPORT}, searched=True)
    assert TUNE.following(lost) == TakeSteps(PREPARATION)


@pytest.mark.parametrize("upto", ALL)
def test_a_way_ends_at_its_goal(upto: StepKind) -> None:
    done = frozenset(ALL[: ALL.index(upto) + 1])
    assert TUNE.following(JobProgress(done, searched=True), upto) in (
        None,
        CloseJob(JobState.SUCCEEDED),
    )


def test_steps_after_the_goal_are_not_taken() -> None:
    searched = JobProgress(PREPARED, searched=True)
    asked = TUNE.following(searched, StepKind.SELECT_WINNERS)
    assert asked == TakeSteps((*PREPARATION, *WINNERS))
    assert TUNE.following(JobProgress(frozenset()), StepKind.IMPORT) == TakeSteps(
        (StepKind.IMPORT,)
    )
    left = TUNE.following(searched, StepKind.MEASURE, frozenset({StepKind.PUBLISH}))
    assert left == TakeSteps(tuple(kind for kind in ALL if kind is not StepKind.PUBLISH))


def test_a_late_job_delivers_what_it_has_or_expires() -> None:
    late = JobProgress(PREPARED, late=True)
    assert TUNE.following(late) == EXPIRES
    searched = JobProgress(PREPARED, searched=True, trials=4, late=True)
    assert TUNE.following(searched) == TakeSteps(ALL)
    nothing = JobProgress(PREPARED, searched=True, late=True)
    assert TUNE.following(nothing) == EXPIRES
    # What is imported for it is of use to others.
    assert TUNE.following(JobProgress(frozenset(), late=True)) == TakeSteps(PREPARATION)


def test_what_a_part_that_failed_makes_of_its_job() -> None:
    unprepared, prepared = JobProgress(frozenset()), JobProgress(PREPARED)
    assert JobState.FAILED is TUNE.closed_by(JobEnd.FAILED, unprepared)
    assert TUNE.closed_by(JobEnd.FAILED, prepared) is None  # the same request goes on
    assert JobState.CANCELLED is TUNE.closed_by(JobEnd.CANCELLED, prepared)
    collection = PLANS[JobKind.COLLECT]
    split = JobProgress(frozenset({StepKind.SPLIT}))
    assert JobState.FAILED is collection.closed_by(JobEnd.FAILED, split)
