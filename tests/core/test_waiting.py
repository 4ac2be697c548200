from __future__ import annotations

from tunefleet.core.waiting import WaitingTime


def test_what_a_stage_waited_before_it_worked_is_counted() -> None:
    waiting = WaitingTime(0.0)
    waiting.began("a", 10.0)
    assert waiting.ended("a", 20.0, 3.0) == 7.0
    waiting.began("b", 20.0)
    assert waiting.ended("b", 30.0, 10.0) == 0.0
    waiting.began("c", 30.0)
    assert waiting.ended("c", 40.0, None) == 0.0


def test_waiting_while_another_stage_works_is_not_only_waiting() -> None:
    waiting = WaitingTime(0.0)
    waiting.began("works", 0.0)
    waiting.began("waits", 2.0)
    assert waiting.ended("works", 6.0, 6.0) == 0.0
    assert waiting.ended("waits", 10.0, 1.0) == 3.0  # from 6 to 9


def test_what_two_stages_wait_together_is_counted_once() -> None:
    waiting = WaitingTime(0.0)
    waiting.began("one", 0.0)
    waiting.began("two", 0.0)
    assert waiting.ended("one", 9.0, 1.0) == 0.0  # the other may have worked
    assert waiting.ended("two", 12.0, 3.0) == 8.0


def test_a_stage_that_ends_is_no_longer_in_the_way_of_another() -> None:
    waiting = WaitingTime(0.0)
    waiting.began("long", 0.0)
    for n in range(100):
        waiting.began(n, float(n))
        waiting.ended(n, n + 1.0, 0.5)
    assert waiting.ended("long", 100.0, 0.0) == 50.0
    assert waiting._passed == []


def test_the_moment_that_every_stage_waits_is_none() -> None:
    waiting = WaitingTime(0.0)
    waiting.began("a", 0.0)
    assert waiting.ended("a", 1.05, 1.0) == 0.0


def test_a_job_waits_while_none_of_its_stages_is_given() -> None:
    waiting = WaitingTime(3.0)
    assert waiting.began("a", 5.0) == 2.0
    assert waiting.began("b", 8.0) == 0.0
    assert waiting.ended("a", 9.0, None) == 0.0
    assert waiting.ended("b", 10.0, None) == 0.0
    assert waiting.began("c", 10.05) == 0.0  # between any two stages
    waiting.ended("c", 11.0, None)
    assert waiting.began("d", 17.0) == 6.0
