"""What is delivered without another comparison."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tunefleet.stages import verify

WON = object()


@pytest.mark.parametrize(
    ("first", "second", "sure"),
    [
        ((WON, {"default_s": 3.0, "latency_s": 1.0}), (None, {"default_s": 0.5}), True),
        ((WON, {"default_s": 3.0, "latency_s": 1.0}), (None, {"default_s": 2.0}), False),
        ((WON, {"default_s": 3.0, "latency_s": 1.0}), (None, {"default_s": None}), False),
        ((WON, {"default_s": 3.0, "latency_s": None}), (None, {"default_s": 0.1}), False),
        ((WON, {"default_s": 9.0, "latency_s": 1.0}), (None, None), False),
    ],
    ids=["faster by far", "one keeps its plain schedule", "one was not measured", "nor this one",
         "earlier versions do not say"],
)  # fmt: skip
def test_winners_leave_no_doubt_where_they_are_twice_as_fast(
    first: Any, second: Any, sure: bool
) -> None:
    def weighted(name: str, weight: int) -> Any:
        return SimpleNamespace(task=SimpleNamespace(task_id=name), weight=weight)

    won = {"a": first, "b": second}
    records = SimpleNamespace(winners=lambda job_id: won)
    place: Any = SimpleNamespace(store=SimpleNamespace(records=records))
    job = SimpleNamespace(job_id="job")
    request: Any = SimpleNamespace(delivery=SimpleNamespace(job=job))
    tasks = [weighted("a", 2), weighted("b", 2)]
    prepared: Any = SimpleNamespace(imported=SimpleNamespace(tasks=tasks))
    assert verify._is_surely_faster(place, request, prepared) is sure
    request.delivery.job = None
    assert not verify._is_surely_faster(place, request, prepared)
