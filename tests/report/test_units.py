from __future__ import annotations

import pytest

from tunefleet.core.budget import Budget
from tunefleet.core.statistics import Interval
from tunefleet.report import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0 s", 0.0),
        ("850 ms", 0.85),
        ("1.0 s", 0.9999),
        ("12.3 s", 12.3),
        ("1 min 00 s", 59.97),
        ("6 min 52 s", 412.3),
        ("1 h 00 min", 3599.8),
        ("3 h 05 min", 11100.0),
        (units.UNKNOWN, None),
        (units.UNKNOWN, float("nan")),
    ],
)
def test_a_duration_reads_well(text: str, seconds: float | None) -> None:
    assert text == units.format_seconds(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("820 ns", 820e-9),
        ("12.3 µs", 12.34e-6),
        ("1.00 ms", 0.9999e-3),
        ("3.95 ms", 3.95e-3),
        ("123 ms", 0.1234),
        ("1.20 s", 1.2),
        (units.UNKNOWN, None),
    ],
)
def test_a_latency_has_three_digits(text: str, seconds: float | None) -> None:
    assert text == units.format_latency(seconds)


@pytest.mark.parametrize(
    ("text", "value"), [("9.99", 9.994), ("10.0", 9.999), ("1234", 1234.4), ("0.00123", 0.001234)]
)
def test_significant_digits(text: str, value: float) -> None:
    assert text == units.significant(value)


def test_a_narrow_interval_is_not_shown_as_a_point() -> None:
    interval = Interval(3.952, 3.951, 3.953)
    assert units.format_interval(interval, "ms") == "3.952 ms (3.951 to 3.953)"


def test_a_clock_keeps_its_width() -> None:
    assert units.format_clock(412.9) == "6:52"
    assert units.format_clock(10952) == "3:02:32"


def test_a_small_share_is_not_zero() -> None:
    assert units.format_share(0.0001) == "< 0.1 %"
    assert units.format_share(0.0) == "0.0 %"


def test_a_budget_in_words() -> None:
    budget = Budget(1500, 600.0, 3.9e-3)
    assert units.format_budget(budget) == "1,500 trials or 10 min 00 s or until 3.90 ms"
    of_tasks = Budget(trials_per_task=64, device_seconds=600.0)
    assert units.format_budget(of_tasks) == "64 trials per task or 10 min 00 s of device"
    assert units.format_budget(None) == units.UNKNOWN


def test_bytes() -> None:
    assert units.format_bytes(32768) == "32 KiB"
    assert units.format_bytes(1.5 * 2**20) == "1.5 MiB"
