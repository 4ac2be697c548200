from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.allocation import LaneState, expected_gain, first_batch, next_lane
from tunefleet.core.settings import SearchSettings

SETTINGS = SearchSettings(batch=24, first_batch=16)


def lane(name: str, **values: Any) -> LaneState:
    return replace(LaneState(name, weight=1, flops=1e9), **values)


def test_every_lane_gets_a_first_round_in_order() -> None:
    lanes = [lane("a", history=(1.0,), seconds=1.0), lane("b"), lane("c")]
    assert next_lane(lanes) == lanes[1]


def test_a_verified_lane_starts_after_the_others() -> None:
    known, new, other = lane("a", is_verified=True), lane("b"), lane("c")
    assert new == next_lane([known, new, other])
    assert other == next_lane([known, new, other], {"b"})
    assert known == next_lane([known, replace(new, history=(1.0,))])
    assert known == next_lane([known, new], {"b"})


def test_a_small_budget_is_divided_without_verified_lanes() -> None:
    known, new, other = lane("a", is_verified=True), lane("b"), lane("c")
    assert first_batch(new, [known, new, other], SETTINGS, 10) == 5
    assert first_batch(known, [known, new, other], SETTINGS, 10) == 3


def test_none_when_all_are_exhausted() -> None:
    assert next_lane([lane("a", exhausted=True, history=(1.0,))]) is None


def test_an_exhausted_lane_is_passed_over() -> None:
    lanes = [
        lane("a", exhausted=True, history=(9.0,), seconds=1.0),
        lane("b", history=(1e-3,), seconds=1.0),
    ]
    assert next_lane(lanes) == lanes[1]


def test_the_lane_with_more_of_the_networks_time_goes_first() -> None:
    lanes = [
        lane("a", history=(1e-3,), seconds=5.0),
        lane("b", history=(1e-3,), seconds=5.0, weight=4),
    ]
    assert next_lane(lanes) == lanes[1]


def test_of_equal_lanes_the_one_with_fewer_rounds_goes_first() -> None:
    lanes = [
        lane("a", history=(4e-3, 2e-3, 1e-3), seconds=15.0),
        lane("b", history=(1e-3, 1e-3), seconds=10.0),
    ]
    assert next_lane(lanes) == lanes[1]


def test_the_lane_further_from_the_best_throughput_goes_first() -> None:
    lanes = [
        lane("a", history=(1e-3,), seconds=5.0, flops=1e9),
        lane("b", history=(1e-3,), seconds=5.0, flops=1e8),
    ]
    assert next_lane(lanes) == lanes[1]


def test_cheap_rounds_are_preferred_at_equal_gain() -> None:
    lanes = [
        lane("a", history=(1e-3,), seconds=20.0),
        lane("b", history=(1e-3,), seconds=2.0),
    ]
    assert next_lane(lanes) == lanes[1]


def test_a_lane_whose_trials_all_failed_is_not_tried_for_ever() -> None:
    failing = lane("a", history=(None,) * 40, seconds=40.0)
    assert next_lane([failing, lane("b", history=(1e-2,), seconds=1.0)]) is not failing


def test_a_minor_task_gets_a_small_first_round() -> None:
    lanes = [lane("a"), lane("b", flops=1.0)]
    assert first_batch(lanes[1], lanes, SETTINGS, None) < first_batch(
        lanes[0], lanes, SETTINGS, None
    )


def test_a_small_budget_is_shared_between_the_lanes_still_to_start() -> None:
    lanes = [lane(str(i)) for i in range(10)]
    assert first_batch(lanes[0], lanes, SETTINGS, 40) == 4


def test_an_exhausted_lane_gains_nothing() -> None:
    assert expected_gain(lane("a", history=(1e-3,), seconds=1.0, exhausted=True), 1e12) == 0


def test_a_lane_whose_trials_all_fail_gains_less_each_round() -> None:
    gains = [expected_gain(lane("a", history=(None,) * rounds), 0.0) for rounds in (1, 2, 3)]
    assert gains == sorted(gains, reverse=True)
    assert len(set(gains)) == 3


def test_a_lane_near_the_best_throughput_keeps_a_tenth_of_its_gain() -> None:
    reached = lane("a", history=(1e-3,), seconds=1.0)  # 1e9 FLOPs in 1 ms: 1e12 a second
    far = expected_gain(reached, 0.0)  # no throughput is known
    assert expected_gain(reached, 1e12) == pytest.approx(0.1 * far)
    assert expected_gain(reached, 2e12) == pytest.approx(0.5 * far)
