"""What the result of a run warns of."""

from __future__ import annotations

from typing import Any

import pytest

from tunefleet.results import contradictions


def _result(
    tuned_ms: float | None, kernels_ms: float | None, *latencies_us: float | None, **more: Any
) -> dict[str, Any]:
    return {
        "tuned_ms": None if tuned_ms is None else {"median": tuned_ms},
        "kernels_ms": kernels_ms,
        "tasks": [{"latency_us": each, "weight": 2} for each in latencies_us],
        "outside": None,
        **more,
    }


def test_figures_that_contradict_each_other_are_told() -> None:
    (warning,) = contradictions(_result(9.0, 13.0, 1000.0, 1500.0))
    assert warning.startswith(
        "one inference takes 9 ms end to end, 13 ms by its kernels one by one, "
        "5 ms by its tasks in the search"
    )


@pytest.mark.parametrize(
    "result",
    [
        _result(9.0, 11.0, 4000.0),  # caches are cold in one and warm in the other
        _result(0.02, 0.01, 5.0),  # the call of a tiny network
        _result(9.0, None, None),  # a task without a program
        _result(None, None, 4000.0),  # nothing was measured at the end
        _result(9.0, 1.0, 500.0, outside={"framework": "PyTorch"}),  # segments are no tasks
    ],
)
def test_figures_that_fit_together_are_not(result: dict[str, Any]) -> None:
    assert contradictions(result) == []
