from __future__ import annotations

import pytest

from tunefleet.core.budget import Budget
from tunefleet.core.phases import (
    JUDGED_PHASES,
    PHASE_OF,
    PHASES,
    Forecast,
    LeastBudget,
    TuningClock,
    command_left_s,
    first_delivery_s,
    first_round_s,
    least_budget,
    phase_seconds,
    search_budget,
    search_ends_by,
    tuning_left_s,
)
from tunefleet.core.settings import SearchSettings
from tunefleet.core.stage import StageKey, StageKind, StageSpan
from tunefleet.core.step import StepKind
from tunefleet.core.task import Task, WeightedTask

STEPS = {phase: 10.0 for phase in PHASES if phase != "tune"}


def task(index: int, flops: float = 1e8) -> WeightedTask:
    return WeightedTask(Task(f"{index:032x}", "conv2d", "conv2d", "1x8", flops, "{}"), 1)


def span(task: int, iteration: int, seconds: float) -> StageSpan:
    key = StageKey("job", f"{task:032x}", iteration, StageKind.BUILD)
    return StageSpan(key, "host", 1, 0.0, seconds)


def test_every_step_has_a_phase() -> None:
    assert set(PHASE_OF) == set(StepKind)
    assert set(PHASE_OF.values()) | {"tune"} == set(PHASES)


def test_the_clock_counts_tuning_only() -> None:
    clock = TuningClock(30.0)
    assert clock.elapsed_s(55.0) == 30.0
    clock = clock.started(60.0)
    assert clock.elapsed_s(70.0) == 40.0
    assert clock.started(65.0).elapsed_s(70.0) == 40.0
    clock = clock.stopped(90.0)
    assert clock.elapsed_s(500.0) == 60.0


def test_the_clock_follows_who_counts_the_budget() -> None:
    assert TuningClock(0.0, 10.0).corrected(7.0, 20.0).elapsed_s(21.0) == 8.0
    assert TuningClock(0.0).corrected(7.0, 20.0).elapsed_s(21.0) == 7.0


@pytest.mark.parametrize(
    ("expected", "budget", "trial_s"),
    [
        (40.0, Budget(seconds=60), None),
        (40.0, Budget(seconds=60, trials=100), None),
        (36.0, Budget(seconds=60, trials=100), 0.4),
        (36.0, Budget(trials=100), 0.4),
        (0.0, Budget(seconds=5), None),
        (None, Budget(trials=100), None),
    ],
)
def test_the_nearer_limit_decides_what_is_left_of_tuning(
    expected: float | None, budget: Budget, trial_s: float | None
) -> None:
    left = tuning_left_s(budget, 20.0, 10, trial_s)
    assert left == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("expected", "phase", "in_phase_s"),
    [
        (130.0, "", 0.0),  # seven phases of 10 s, and a minute of tuning
        (126.0, "import", 4.0),
        (120.0, "import", 40.0),  # longer than ever: the others are still to come
        (110.0, "tune", 9.0),
        (6.0, "measure", 4.0),
    ],
)
def test_the_command_is_over_when_all_phases_are(
    expected: float, phase: str, in_phase_s: float
) -> None:
    assert command_left_s(phase, in_phase_s, 60.0, STEPS) == expected


def test_a_delivery_that_is_judged_is_measured_before_it_is_published() -> None:
    assert command_left_s("measure", 4.0, 60.0, STEPS, JUDGED_PHASES) == 16.0
    assert command_left_s("publish", 4.0, 60.0, STEPS, JUDGED_PHASES) == 6.0
    assert {*PHASES} == {*JUDGED_PHASES}


def test_a_phase_of_which_nothing_is_known_leaves_the_time_unknown() -> None:
    without = {phase: seconds for phase, seconds in STEPS.items() if phase != "verify"}
    assert command_left_s("import", 0.0, 60.0, without) is None
    assert command_left_s("import", 0.0, None, STEPS) is None
    assert command_left_s("publish", 0.0, None, without) == 20.0


def test_phases_take_the_median_of_earlier_runs() -> None:
    walls = [
        {"import": 4.0, "build finalists": 1.0, "select winners": 2.0},
        {"import": 6.0, "build finalists": 5.0},
        {"import": 90.0, "select": 8.0},
    ]
    assert phase_seconds(walls) == {"import": 6.0, "verify winners": 3.0}


def test_first_rounds_are_those_before_anything_was_measured() -> None:
    spans = [span(0, 0, 1.0), span(0, 0, 2.0), span(1, 0, 5.0), span(0, 1, 50.0), span(0, -1, 9.0)]
    assert first_round_s(spans) == 4.0
    assert first_round_s([span(0, 3, 1.0)]) is None


def test_a_first_batch_of_every_task_is_the_least_budget() -> None:
    tasks = [task(0), task(1), task(2, flops=1.0)]  # small ones get two trials
    assert least_budget(tasks, SearchSettings(first_batch=4), 6.0) == LeastBudget(3, 10, 18.0)


@pytest.mark.parametrize(
    ("expected", "budget"),
    [
        ("", Budget(trials=136)),
        ("", Budget(trials=1000, seconds=600)),
        ("the budget of 30 seconds is too small for 34 tasks", Budget(trials=1000, seconds=30)),
        ("the budget of 30 seconds is too small for 34 tasks", Budget(seconds=30)),
        ("the budget of 12 trials is too small for 34 tasks", Budget(trials=12, seconds=600)),
        ("of all of them takes 136 trials; some may stay untuned", Budget(trials=12)),
        ("takes about 3.5 minutes; some may stay untuned", Budget(seconds=60)),
        ("give a larger --minutes", Budget(seconds=60)),
    ],
)
def test_a_budget_below_the_least_is_warned_of(expected: str, budget: Budget) -> None:
    warning = LeastBudget(34, 136, 210.0).warning(budget)
    assert expected in warning
    assert bool(expected) == bool(warning)


def test_an_unknown_duration_warns_of_nothing() -> None:
    assert LeastBudget(34, 136).warning(Budget(seconds=1)) == ""


@pytest.mark.parametrize(
    ("expected", "least"),
    [
        ("34 tasks; a first batch of each takes 136 trials", LeastBudget(34, 136)),
        (
            "34 tasks; a first batch of each takes 136 trials, about 3.5 minutes",
            LeastBudget(34, 136, 210.0),
        ),
        ("1 task; a first batch of it takes 4 trials, about 7 seconds", LeastBudget(1, 4, 6.2)),
        ("2 tasks; a first batch of each takes 8 trials, about 1 minute", LeastBudget(2, 8, 60.0)),
    ],
)
def test_the_least_budget_in_words(expected: str, least: LeastBudget) -> None:
    assert least.text() == expected


@pytest.mark.parametrize(("seconds", "prepared"), [(70.0, False), (50.0, True)])
def test_what_the_steps_around_a_search_take(seconds: float, prepared: bool) -> None:
    assert Forecast(STEPS).around_search_s(prepared=prepared) == seconds
    unknown = Forecast({"import": 10.0, "check": 10.0})
    assert unknown.around_search_s(prepared=prepared) is None


@pytest.mark.parametrize(
    ("expected", "deadline", "delivery_s"),
    [
        (None, None, 20.0),
        (200.0, 200.0, None),
        (180.0, 200.0, 20.0),
        (150.0, 200.0, 80.0),  # half of the time is the search's
        (90.0, 90.0, 80.0),  # it is past
    ],
)
def test_a_search_ends_early_enough_to_deliver_by_its_deadline(
    expected: float | None, deadline: float | None, delivery_s: float | None
) -> None:
    assert search_ends_by(deadline, delivery_s, now=100.0) == expected


@pytest.mark.parametrize(
    ("left_s", "seconds", "around_s"),
    [
        (0.0, 240.0, 36.0),  # 15 %
        (24.0, 240.0, 60.0),
        (80.0, 240.0, 400.0),  # a third, at most
        (0.0, 600.0, 60.0),
        (0.0, 239.0, 60.0),  # a short one is the search's
    ],
)
def test_a_search_leaves_time_to_steps_that_take_too_long(
    left_s: float, seconds: float, around_s: float
) -> None:
    budget = search_budget(Budget(trials=1, seconds=seconds), around_s)
    assert budget.seconds == pytest.approx(seconds - left_s)
    assert budget.trials == 1


def test_a_budget_of_trials_is_the_search_s() -> None:
    assert search_budget(Budget(trials=9), 60.0) == Budget(trials=9)


def test_a_delivery_takes_longer_with_more_tasks_and_a_longer_import() -> None:
    seconds = [first_delivery_s(*of) for of in ((0, 0.0), (100, 0.0), (100, 10.0))]
    assert seconds == sorted(set(seconds))
