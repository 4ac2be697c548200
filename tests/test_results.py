from __future__ import annotations

from typing import Any

import pytest

from tunefleet.core.trial import Candidate, Failure, FailureKind, Measurement, Trial
from tunefleet.results import failure_texts, failures_by_kind, search_failed


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
    assert failure_texts(TRIALS)["build_error"] == [["too large", 2], ["no such intrinsic", 1]]


def result(**values: Any) -> dict[str, Any]:
    found = {"tasks": [{}], "trials": 4, "failures": {"build_error": 3, "run_crash": 1},
             "failure_texts": failure_texts(TRIALS)}  # fmt: skip
    return found | values


def test_a_search_whose_trials_all_failed_says_the_most_frequent_reason() -> None:
    expected = "all 4 trials failed, most often by build error: too large"
    assert search_failed(result()) == expected


def test_a_search_without_trials_says_why() -> None:
    assert search_failed(result(trials=0)) == "no program could be tried: none was selected"
    assert search_failed(result(trials=0, stopped="time is over")).endswith(": time is over")


@pytest.mark.parametrize(
    "values", [{"trials": 5}, {"tasks": []}, {"trials": 0, "reused": 3}], ids=str
)
def test_a_search_that_found_something_or_had_nothing_to_find_did_not_fail(
    values: dict[str, Any],
) -> None:
    assert search_failed(result(**values)) == ""
