from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from tunefleet.report.placement_text import placement_table, totals_table


def cost(kernels_s: float, transfers_s: float, parts: int = 1) -> dict[str, Any]:
    total_s = kernels_s + transfers_s
    times = {"kernels_s": kernels_s, "transfers_s": transfers_s, "total_s": total_s}
    return {**times, "parts": parts}


def device(name: str, rate: float | None, error: float | None) -> dict[str, Any]:
    link = {"latency_s": 1e-4, "bytes_per_s": rate}
    recorded = 0 if error is None else 9
    return {
        "name": name, "call_s": 5e-4, "up": link, "down": link, "recorded_tasks": recorded,
        "typical_error": error,
    }  # fmt: skip


def report(**changes: Any) -> dict[str, Any]:
    timing = {"predicted_s": None, "measured_s": 2e-6, "program": "plain"}
    return {
        "network": "net",
        "devices": [device("here", None, 1.2), device("board", 40e6, None)],
        "tasks": [
            {
                "name": "conv2d+add", "shapes": "1x3 -> 1x4", "calls": 3,
                "on": {"here": 1, "board": 2},
                "seconds": {"here": timing, "board": {**timing, "program": "record"}},
            }
        ],
        "best_device": "here",
        "placement": cost(2e-3, 1e-3, 3),
        "fastest_each": cost(1e-3, 9e-3, 5),
        "alone": {"here": cost(4e-3, 0.0), "board": {"total_s": None}},
        "predicted": None,
        "ran": {"placement_s": 3e-3, "alone_s": 6e-3, "difference": 0.0},
        "pays": True,
        **changes,
    }  # fmt: skip


def shown(table: Any) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_calls_of_one_task_may_be_on_several_devices() -> None:
    text = shown(placement_table(report()))
    assert "here \N{MULTIPLICATION SIGN}1, board \N{MULTIPLICATION SIGN}2" in text
    assert "2.00 µs plain" in text


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "the placement; 2.00\N{MULTIPLICATION SIGN} as fast as the best device alone"),
        ({"pays": False}, "here alone: run in turn, the division was not faster"),
        ({"pays": False, "ran": None}, "here alone: each task where it is fastest loses 6.00 ms"),
        (
            {"pays": False, "ran": None, "fastest_each": cost(4e-3, 0.0)},
            "here alone: every task is fastest there",
        ),
    ],
)
def test_what_to_use_is_said(changes: dict[str, Any], verdict: str) -> None:
    assert verdict in shown(totals_table(report(**changes)))


def test_totals_name_what_is_missing() -> None:
    text = shown(totals_table(report()))
    assert "not every task runs there" in text
    assert "board has no records of other tasks" in text
    assert "this machine; a call 500 µs" in text


def test_what_predictions_lose_is_told() -> None:
    predicted = {**cost(2e-3, 0.0), "same_calls": 2, "calls": 3, "regret_s": 1e-3}
    text = shown(totals_table(report(predicted=predicted)))
    assert "2 of 3 calls where they are now, the others lose 1.00 ms" in text
