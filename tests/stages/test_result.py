"""What the result of a run says and warns of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.result import Outside, RunResult, TaskResult
from tunefleet.core.stage import StageKey, StageKind, StageRun, UpdateResult
from tunefleet.core.statistics import Interval
from tunefleet.core.trial import Candidate, Failure, FailureKind, Measurement, Trial
from tunefleet.report.words import at_once_text
from tunefleet.stages.failures import failure_texts, failures_by_kind, search_failed
from tunefleet.stages.result import contradictions, untuned
from tunefleet.stages.times import BusyTime, wall_of

pytestmark = pytest.mark.tvm


def failed(kind: FailureKind, text: str) -> Trial:
    return Trial(Candidate(text, "[]"), 0, Failure(kind, text))


TRIALS = [
    failed(FailureKind.BUILD_ERROR, "no such intrinsic"),
    failed(FailureKind.RUN_CRASH, "SIGSEGV"),
    failed(FailureKind.BUILD_ERROR, "too large"),
    failed(FailureKind.BUILD_ERROR, "too large"),
    Trial(Candidate("good", "[]"), 0, Measurement((1e-3,))),
]


def test_failures_are_counted_by_kind() -> None:
    assert failures_by_kind(TRIALS) == {"build_error": 3, "run_crash": 1}


def test_what_was_said_most_often_comes_first() -> None:
    assert failure_texts(TRIALS)["build_error"] == (("too large", 2), ("no such intrinsic", 1))


RESULT = RunResult(
    tasks=(TaskResult(),),
    trials=4,
    failures={"build_error": 3, "run_crash": 1},
    failure_texts=failure_texts(TRIALS),
)


def test_a_search_whose_trials_all_failed_says_the_most_frequent_reason() -> None:
    expected = "all 4 trials failed, most often by build error: too large"
    assert search_failed(RESULT) == expected


def test_a_search_without_trials_says_why() -> None:
    assert (
        search_failed(replace(RESULT, trials=0)) == "no program could be tried: none was selected"
    )
    assert search_failed(replace(RESULT, trials=0, stopped="over")).endswith(": over")


def test_stages_that_run_at_once_take_their_time_once() -> None:
    runs = [
        StageRun(StageKey("job", "task", 0, kind), UpdateResult(b"", 0), started_at, seconds)
        for kind, started_at, seconds in [
            (StageKind.BUILD, 10.0, 6.0),
            (StageKind.PROFILE, 12.0, 2.0),
            (StageKind.BUILD, 14.0, 4.0),
            (StageKind.PROFILE, 20.0, 1.0),
        ]
    ]
    wall = wall_of([], runs, searched_s=12.0)
    assert wall == {"build": 10.0, "profile": 3.0, "other": 12.0 - 9.0}
    busy = BusyTime(runs)
    assert [busy.at(moment) for moment in (10.0, 14.0, 18.0, 20.0, 21.0)] == [0, 4, 8, 8, 9]
    result = RunResult(wall=wall, wall_s=12.0)
    assert at_once_text(result) == "stages that ran at once count each: 16.0 s of stages in 12.0 s"
    assert at_once_text(replace(result, wall_s=16.0)) == ""


@pytest.mark.parametrize(
    "values",
    [{"trials": 5}, {"tasks": ()}, {"trials": 0, "reused": 3}, {"trials": 0, "known": 1}],
    ids=str,
)
def test_a_search_that_found_something_or_had_nothing_to_find_did_not_fail(
    values: dict[str, Any],
) -> None:
    assert search_failed(replace(RESULT, **values)) == ""


def measured(
    tuned_ms: float | None, kernels_ms: float | None, *latencies_us: float | None, **more: Any
) -> RunResult:
    return RunResult(
        tuned_ms=None if tuned_ms is None else Interval(tuned_ms, tuned_ms, tuned_ms),
        kernels_ms=kernels_ms,
        tasks=tuple(TaskResult(latency_us=each, weight=2) for each in latencies_us),
        **more,
    )


def test_a_budget_that_was_too_small_for_every_task_is_warned_of() -> None:
    tasks = tuple(TaskResult(task_id=str(index)) for index in range(34))
    result = RunResult(tasks=tasks, trials=4, tuned_tasks=1)
    (warning,) = untuned(result, first_batch=4)
    assert warning.startswith("1 of 34 tasks tuned: no program of the others was measured")
    assert warning.endswith("a first batch of each takes 136 trials")
    assert untuned(replace(result, tuned_tasks=34), first_batch=4) == []


def test_figures_that_contradict_each_other_are_told() -> None:
    (warning,) = contradictions(measured(9.0, 13.0, 1000.0, 1500.0))
    assert warning.startswith(
        "one inference takes 9 ms end to end, 13 ms by its kernels one by one, "
        "5 ms by its tasks in the search"
    )


@pytest.mark.parametrize(
    "result",
    [
        measured(9.0, 11.0, 4000.0),  # caches are cold in one and warm in the other
        measured(0.02, 0.01, 5.0),  # the call of a tiny network
        measured(9.0, None, None),  # a task without a program
        measured(None, None, 4000.0),  # nothing was measured at the end
        measured(
            9.0, 1.0, 500.0, outside=Outside(framework="PyTorch", segments=())
        ),  # segments are no tasks
    ],
)
def test_figures_that_fit_together_are_not(result: RunResult) -> None:
    assert contradictions(result) == []
