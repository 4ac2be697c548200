"""Bars by resource: tracks, merging, shares of time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.report.timeline import Bar, Gap, Timeline, merged, shares, tracks


def bar(start: float, end: float, job: str = "a", resource: str = "r", attempt: int = 1) -> Bar:
    return Bar(resource, job, "build", "t", start, end, attempt)


def test_rows_come_in_the_order_asked_for_and_idle_ones_stay() -> None:
    timeline = Timeline((bar(5, 6, resource="z"), bar(1, 2, resource="b")), ("c", "b"))
    assert list(timeline.rows()) == ["c", "b", "z"]


def test_a_resource_that_was_only_unavailable_has_a_row() -> None:
    timeline = Timeline((), gaps=(Gap("r", 0, 9),))
    assert (timeline.rows(), timeline.end_s) == ({"r": []}, 9)


def test_utilisation_is_the_share_of_the_whole_time_and_of_all_slots() -> None:
    timeline = Timeline((bar(0, 4), bar(0, 2), bar(0, 8, resource="d")), slots={"r": 2})
    assert timeline.utilisation() == {"r": pytest.approx(6 / 16), "d": 1.0}


def test_an_empty_timeline_is_idle() -> None:
    assert Timeline((), ("r",)).utilisation() == {"r": 0.0}


spans = st.lists(st.tuples(st.floats(0, 99), st.floats(0.01, 20)), max_size=30)


@given(spans)
def test_no_bar_overlaps_another_of_its_track(given_spans: list[tuple[float, float]]) -> None:
    bars = sorted((bar(s, s + d) for s, d in given_spans), key=lambda b: b.start_s)
    found = tracks(bars)
    assert sorted(b.start_s for t in found for b in t) == [b.start_s for b in bars]
    assert all(one.end_s <= other.start_s for t in found for one, other in pairwise(t))


def test_neighbours_of_one_job_and_stage_are_merged_across_small_gaps_only() -> None:
    found = merged([bar(0, 1), bar(1.1, 2), bar(2.5, 3), bar(3, 4, job="b")], 0.2)
    assert [(b.job, b.start_s, b.end_s) for b in found] == [("a", 0, 2), ("a", 2.5, 3), ("b", 3, 4)]


def test_an_attempt_after_the_first_is_not_merged_away() -> None:
    assert len(merged([bar(0, 1), bar(1, 2, attempt=2)], 0.2)) == 2


@given(spans)
def test_shares_keep_all_the_time_that_was_worked(given_spans: list[tuple[float, float]]) -> None:
    bars = [bar(s, s + d, job="ab"[i % 2]) for i, (s, d) in enumerate(given_spans)]
    found = shares(bars, lambda b: "ab".index(b.job), 2, end_s=120.0, buckets=7)
    for job, layer in zip("ab", found, strict=True):
        worked = sum(b.end_s - b.start_s for b in bars if b.job == job)
        assert sum(layer) * 120 / 7 == pytest.approx(worked)


def test_shares_of_a_resource_with_slots_never_exceed_one() -> None:
    assert shares([bar(0, 9), bar(0, 9)], lambda b: 0, 1, 9, 3, slots=2) == [[1.0, 1.0, 1.0]]
