from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.report.scales import count_scale, tick_time, time_scale, value_scale


@given(st.floats(1e-4, 1e5), st.floats(1.0, 1e4))
def test_every_value_lies_on_the_axis(low: float, ratio: float) -> None:
    scale = value_scale(low, low * ratio)
    assert -1e-9 <= scale(low) <= scale(low * ratio) <= 1 + 1e-9
    assert 2 <= len(scale.ticks) <= 20


@given(st.floats(0.0, 1e7))
def test_time_starts_at_zero_and_ticks_fit(end_s: float) -> None:
    scale = time_scale(end_s)
    assert scale(0.0) == 0.0
    assert len(scale.ticks) <= 9
    assert all(tick <= scale.high * (1 + 1e-9) for tick in scale.ticks)


@pytest.mark.parametrize(("log", "high"), [(False, 9.9), (True, 10.1)])
def test_a_wide_range_is_logarithmic(log: bool, high: float) -> None:
    assert log == value_scale(1.0, high).log


def test_ticks_are_round() -> None:
    assert value_scale(4.1, 9.4).ticks == pytest.approx((4, 6, 8, 10))
    assert all(math.isclose(t % 5, 0) for t in time_scale(31.0).ticks)


@given(st.floats(0.0, 1e9))
def test_counts_lie_between_zero_and_a_round_number(high: float) -> None:
    scale = count_scale(high)
    assert scale(0.0) == 0.0
    assert high <= scale.high * (1 + 1e-9)
    assert len(scale.ticks) <= 7
    assert scale.ticks[-1] == scale.high


@pytest.mark.parametrize(
    ("seconds", "end_s", "text"),
    [(0, 1e6, "0"), (60, 119, "60 s"), (90, 120, "1.5 min"), (5400, 7200, "1.5 h")],
)
def test_ticks_of_time_have_the_unit_of_their_axis(seconds: float, end_s: float, text: str) -> None:
    assert tick_time(seconds, end_s) == text
