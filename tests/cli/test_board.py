from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from tunefleet.cli.board import Board
from tunefleet.cli.overview import Overview, short_names
from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    JobEnded,
    JobHeld,
    JobOpened,
    Note,
    PhaseStarted,
    ResourceBack,
    ResourceQuarantined,
    StageAbandoned,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.stage import StageKind

from .streams import JOB, finished, key, lane, several

RESTS = ResourceQuarantined("gpu0", "it drifts", 30.0)
#: A stage of network 0 and one of network 1, which run at once.
BUILD, PROFILE = key(0, 1, StageKind.BUILD), key(0, 0, StageKind.PROFILE, "1" * 32)


def after(networks: Sequence[str], events: Sequence[tuple[int, Event]]) -> tuple[Overview, float]:
    """The overview after events that come a second apart, and the time then."""
    overview = Overview(short_names(networks))
    for now, (index, event) in enumerate(events, 1):
        overview.absorb(index, event, float(now))
    return overview, float(len(events))


def shown(overview: Overview, now: float, *, width: int = 140, height: int = 40) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, height=height).print(Board(overview, now))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def line_of(lines: Sequence[str], start: str) -> str:
    return next(line for line in lines if line.startswith(start))


def at_once() -> list[tuple[int, Event]]:
    opened: list[tuple[int, Event]] = []
    for index in range(2):
        job = JobOpened(JOB, False, Budget(trials=100 * (index + 1)), 0.0)
        opened += [(index, job), (index, lane(0)), (index, PhaseStarted("tune"))]
    return [
        *opened,
        (0, StageStarted(BUILD, "host0")),
        (1, StageStarted(PROFILE, "cpu0")),
        (0, StageProgressed(BUILD, 12, 32)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(40, 10), (60, 14), (80, 24), (140, 50)])
def test_the_board_fits_at_every_moment(width: int, height: int) -> None:
    overview, now = Overview(["n" * 50, *"abcdefghijk"]), 0.0
    for number, (index, event) in enumerate(several(12, rounds=3)):
        now += 1.0
        overview.absorb(index, event, now)
        if number % 13:  # drawing each moment takes long and shows no more
            continue
        file = io.StringIO()
        Console(file=file, width=width, height=height).print(Board(overview, now))
        lines = file.getvalue().splitlines()
        assert width >= max(map(len, lines))
        assert height > len(lines)


def test_every_network_has_a_row_with_what_it_does() -> None:
    lines = shown(*after(["zoo:a", "zoo:b", "zoo:c"], at_once()))
    assert line_of(lines, "a ").split()[1:] == (
        ["tuning", "0/100", "0:06", "0/1", "tasks", "build", "conv2d+add+maximum", "12/32"]
    )
    assert line_of(lines, "b ").split()[1:3] == ["tuning", "0/200"]
    assert line_of(lines, "c ").split() == ["c", "waiting"]


def test_every_resource_has_a_line_with_its_use_so_far() -> None:
    overview, now = after(["a", "b"], at_once())
    lines = shown(overview, now)
    assert line_of(lines, "host0") == "host0  used 100%   a build conv2d+add+maximum 12/32"
    assert line_of(lines, "cpu0") == "cpu0   used  50%   b profile conv2d+add+maximum"
    overview.absorb(1, finished(PROFILE, 16, 3.0), now)
    assert line_of(shown(overview, now + 2), "cpu0") == "cpu0   used  25%   idle"


@pytest.mark.parametrize(
    "end", [StageAbandoned(BUILD, "silent"), PhaseStarted("compile"), JobEnded("broken")]
)
def test_however_a_stage_ends_its_resource_is_free(end: Event) -> None:
    overview, now = after(["a", "b"], [*at_once(), (0, end)])
    assert line_of(shown(overview, now), "host0").endswith("idle")


def test_an_attempt_elsewhere_frees_the_first_resource() -> None:
    overview, now = after(["a", "b"], [*at_once(), (0, StageStarted(BUILD, "host1"))])
    assert line_of(shown(overview, now), "host0").endswith("idle")


def test_networks_that_ended_make_room_first() -> None:
    overview, now = after(["a", "b", "c", "d"], [(0, JobEnded()), (2, JobEnded())])
    lines = shown(overview, now, height=8)
    assert [line[0] for line in lines[3:5]] == ["b", "d"]
    assert lines[5] == "and 2 more networks"


def test_notes_name_their_network_and_errors_stay() -> None:
    notes = [(1, Note(f"note {i}")) for i in range(9)]
    lines = shown(*after(["a", "b"], [(0, JobEnded("it differs")), *notes]))
    assert lines[-3:] == ["b: note 7", "b: note 8", "a: failed: it differs"]


def test_a_held_network_tells_why() -> None:
    lines = shown(*after(["a", "b"], [*at_once(), (1, JobHeld("by its user"))]))
    assert line_of(lines, "b ").split()[1] == "paused"
    assert line_of(lines, "b ").endswith("by its user")


def test_what_is_said_of_a_resource_by_every_network_is_told_once() -> None:
    overview, _ = after(["a", "b"], [(0, RESTS), (1, RESTS)])
    assert [told.line() for told in overview.notes] == ["warning: gpu0: pausing 30 s: it drifts"]
    back = [overview.absorb(index, ResourceBack("gpu0"), 9.0) for index in (0, 1)]
    assert [told is None for told in back] == [False, True]


def test_a_resource_that_rests_again_is_told_again() -> None:
    overview, _ = after(["a", "b"], [(0, RESTS)])
    assert overview.absorb(0, RESTS, 60.0) is not None


def test_a_resource_that_rests_is_shown_with_the_time_left() -> None:
    lines = shown(*after(["a", "b"], [(0, RESTS)]))
    assert line_of(lines, "gpu0") == "gpu0  used   0%   pausing 0:30: it drifts"


def test_more_resources_than_there_is_room_for_are_counted() -> None:
    events = [(0, ResourceQuarantined(f"gpu{i}", "it drifts", 9.0)) for i in range(9)]
    lines = shown(*after(["a", "b"], events))
    assert "and 4 more resources" in lines


def test_the_last_network_decides_the_time_left() -> None:
    jobs = [JobOpened(JOB, False, Budget(seconds=s), 0.0) for s in (60.0, 100.0)]
    overview, now = after(["a", "b"], list(enumerate(jobs)))
    for index in range(2):
        overview.absorb(index, PhaseStarted("tune"), now)
    assert overview.left_s(now + 1) == 99.0
    overview.absorb(1, JobEnded(), now + 1)
    assert overview.left_s(now + 1) == 59.0


def test_names_are_not_markup() -> None:
    assert "[red]a" in "\n".join(shown(*after(["[red]a", "b"], [(0, JobEnded("[bold]x"))])))


@pytest.mark.parametrize(
    ("networks", "short"),
    [
        (["zoo:a"], ["zoo:a"]),
        (["zoo:a", "x/b.onnx"], ["a", "b.onnx"]),
        (["x/a.onnx", "y/a.onnx"], ["x/a.onnx", "y/a.onnx"]),
    ],
)
def test_short_names_stay_different(networks: list[str], short: list[str]) -> None:
    assert short_names(networks) == short
