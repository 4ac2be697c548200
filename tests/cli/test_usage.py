from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.cli.usage import Usage


def used(*changes: tuple[float, str]) -> Usage:
    """The usage after the resources named by letters became the busy ones at these times."""
    usage = Usage()
    for now, busy in changes:
        usage = usage.after(frozenset(busy), now)
    return usage


def test_nothing_is_known_before_the_first_stage() -> None:
    assert used((3.0, "")).shares(9.0) == {}


def test_shares_count_from_the_first_stage_on() -> None:
    assert used((10.0, "h"), (12.0, "hd"), (18.0, "d")).shares(20.0) == {"h": 0.8, "d": 0.8}


def test_a_pause_between_stages_counts() -> None:
    assert used((0.0, "h"), (1.0, ""), (3.0, "h")).shares(4.0) == {"h": 0.5}


def test_shares_stay_when_tuning_has_ended() -> None:
    usage = used((0.0, "h"), (6.0, "d"), (8.0, ""))
    assert usage.shares(8.0) == usage.shares(1e6) == {"h": 0.75, "d": 0.25}


def test_no_time_is_no_share() -> None:
    assert used((5.0, "h")).shares(5.0) == {"h": 0.0}


def test_resources_stay_in_the_order_in_which_they_were_first_used() -> None:
    assert list(used((0.0, "h"), (1.0, "d"), (2.0, "ag")).shares(3.0)) == ["h", "d", "a", "g"]


@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.sampled_from("abc"), min_size=1))))
def test_shares_are_sums_of_busy_time(steps: list[tuple[int, set[str]]]) -> None:
    usage, now = Usage(), 0.0
    seconds: dict[str, float] = {}
    for duration, busy in steps:
        usage = usage.after(frozenset(busy), now)
        now += duration
        for name in busy:
            seconds[name] = seconds.get(name, 0.0) + duration
    assert usage.shares(now) == pytest.approx(
        {n: s / now if now else 0 for n, s in seconds.items()}
    )
