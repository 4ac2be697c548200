from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.report.scales import time_scale, value_scale


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
