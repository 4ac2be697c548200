from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.trial import Measurement, ranking_latency

latencies = st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=50)


def test_ranks_by_the_tenth_percentile() -> None:
    assert ranking_latency((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0)) == 2.0


@given(latencies)
def test_rank_lies_between_minimum_and_median(values: list[float]) -> None:
    rank = ranking_latency(tuple(values))
    assert min(values) <= rank <= sorted(values)[len(values) // 2]


@given(latencies)
def test_one_slow_repeat_in_many_does_not_change_the_rank_upwards_much(values: list[float]) -> None:
    assert ranking_latency((*values, 1e3)) <= max(values) or len(values) < 2


@pytest.mark.parametrize("values", [(), (0.0,), (-1.0, 1.0)])
def test_measurement_needs_positive_latencies(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="positive latency"):
        Measurement(values)
