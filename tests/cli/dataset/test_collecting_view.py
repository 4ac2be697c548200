"""What `dataset collect` shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tunefleet.cli.dataset.collecting_view import Tally, Watcher
from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    JobEnded,
    JobHeld,
    JobOpened,
    LaneUpdated,
    Note,
    PhaseStarted,
    ResourceQuarantined,
)
from tunefleet.core.task import Task, WeightedTask


def opened(trials: int) -> JobOpened:
    return JobOpened("j", False, Budget(trials=trials), 0.0)


def lane(task: str, trials: int) -> LaneUpdated:
    return LaneUpdated(
        WeightedTask(Task(task, task, "add", "1", 1.0, ""), 1), trials, 0, None, None
    )


def test_what_is_left_is_told_at_the_rate_so_far() -> None:
    tally = Tally(["a", "b"], now=100.0)
    assert tally.left_s(100.0) is None
    tally.absorb(0, opened(40))
    tally.absorb(0, lane("x", 0))
    tally.absorb(0, lane("x", 20))
    # 20 of 40 in 10 s; a network that is not imported yet counts as much as the one that is.
    assert tally.left_s(110.0) == 30.0
    tally.absorb(0, JobEnded())
    tally.absorb(1, opened(10))
    assert tally.left_s(110.0) == 5.0


def test_records_of_earlier_calls_do_not_make_the_rate() -> None:
    tally = Tally(["a"], now=0.0)
    tally.absorb(0, opened(100))
    tally.absorb(0, lane("x", 80))
    assert tally.left_s(5.0) is None
    tally.absorb(0, lane("x", 90))
    assert (tally.trials, tally.left_s(5.0)) == (90, 5.0)


def test_a_network_that_was_collected_before_is_not_waited_for() -> None:
    tally = Tally(["a", "b"], now=0.0)
    tally.absorb(0, JobEnded())
    tally.absorb(1, opened(10))
    assert (tally.ended, tally.expected()) == (1, 10)


def test_a_log_gets_a_line_when_a_network_ends() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, markup=False)
    with Watcher(["a", "b"], console, quiet=False) as watcher:
        first, second = watcher.observer(0), watcher.observer(1)
        first(PhaseStarted("import"))
        first(opened(4))
        first(lane("x", 4))
        second(PhaseStarted("import"))
        first(JobEnded())
        second(Note("cannot be imported", warning=True))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("4 records, 1 of 2 networks, 0:00")
    assert lines[0].endswith(": importing b")
    assert lines[1] == "b: warning: cannot be imported"


@pytest.mark.parametrize("quiet", [False, True])
def test_what_holds_a_collection_is_told(quiet: bool) -> None:
    out = io.StringIO()
    with Watcher(["a", "b"], Console(file=out, width=120), quiet=quiet) as watcher:
        rests = ResourceQuarantined("board", "no answer", 4.0)
        for index in (0, 1):
            watcher.observer(index)(rests)
        watcher.observer(1)(JobHeld("the disk is full"))
        watcher.observer(0)(Note("as before"))
    told = ["warning: board: pausing 4 s: no answer", "b: warning: paused: the disk is full"]
    assert out.getvalue().splitlines() == [*told, *([] if quiet else ["a: note: as before"])]
