from __future__ import annotations

import io
import time
from collections.abc import Iterable
from typing import get_args

import pytest
from rich.console import Console

from tunefleet.cli.live import LineView, TerminalView, watch
from tunefleet.cli.progress import Progress
from tunefleet.cli.view import Panel, bar, sparkline
from tunefleet.core.budget import Budget
from tunefleet.core.events import Event, JobOpened, LaneUpdated, Note, PhaseStarted, StageStarted
from tunefleet.core.stage import StageKind

from .streams import JOB, a_run, finished, key, lane, weighted


def after(events: Iterable[Event], *, step_s: float = 1.0) -> tuple[Progress, float]:
    progress, now = Progress("net"), 0.0
    for event in events:
        now += step_s
        progress.absorb(event, now)
    return progress, now


def shown(progress: Progress, now: float, *, width: int = 80, height: int = 40) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, height=height).print(Panel(progress, now))
    return file.getvalue().splitlines()


def test_the_stream_holds_every_kind_of_event() -> None:
    assert set(get_args(Event)) == {type(event) for event in a_run()}


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (200, 60)])
def test_the_panel_fits_at_every_moment(width: int, height: int, resumed: bool) -> None:
    progress, now = Progress("net" * 50), 0.0
    for number, event in enumerate(a_run(tasks=20, rounds=21, resumed=resumed, steps=1)):
        now += 1.0
        progress.absorb(event, now)
        if number > 30 and number % 7:  # drawing each moment takes long and shows no more
            continue
        lines = shown(progress, now, width=width, height=height)
        assert width >= max(map(len, lines))
        assert height > len(lines)


def test_a_resumed_job_counts_what_was_done_before() -> None:
    opened = JobOpened(JOB, True, Budget(trials=100), 300.0)
    progress, now = after([opened, lane(0, trials=40, failed=2, best_s=1e-3)])
    text = "\n".join(shown(progress, now))
    assert "resumed" in text
    assert "trials 40 of 100" in text
    assert "time 5:01" in text
    assert "failed 2" in text


def test_time_left_follows_the_rate_of_this_run() -> None:
    progress, _ = after([JobOpened(JOB, True, Budget(trials=100), 300.0), lane(0, trials=40)])
    progress.absorb(StageStarted(key(0, 1, StageKind.SELECT)), 10.0)
    progress.absorb(lane(0, trials=60), 30.0)
    assert progress.left_s(30.0) == 40.0


def test_the_nearer_limit_decides_the_time_left() -> None:
    opened = JobOpened(JOB, False, Budget(trials=100, seconds=60.0), 0.0)
    progress, now = after([opened])
    assert progress.left_s(now + 20.0) == 40.0


def test_the_estimate_waits_for_every_task() -> None:
    progress, now = after([lane(0, best_s=1e-3), lane(1)])
    assert progress.latency_s is None
    assert "1 of 2 tasks measured" in "\n".join(shown(progress, now))
    progress.absorb(lane(1, best_s=2e-3), now)
    assert progress.latency_s == pytest.approx(
        1e-3 * weighted(0).weight + 2e-3 * weighted(1).weight
    )


def test_tasks_are_ranked_by_their_share() -> None:
    progress, _ = after([lane(0, best_s=1e-3), lane(1, best_s=5e-3), lane(2)])
    order = [item.weighted.task.task_id for item in progress.ranked()]
    assert order == [weighted(i).task.task_id for i in (1, 0, 2)]


def test_the_share_of_peak_is_shown_when_the_peak_is_known() -> None:
    progress, now = after([lane(0, best_s=weighted(0).task.flops / 100e9)])
    assert "peak" not in "\n".join(shown(progress, now))
    progress.peak_gflops = 200.0
    assert "50.0 %" in "\n".join(shown(progress, now))


def test_a_new_phase_clears_the_stage() -> None:
    progress, _ = after([StageStarted(key(0, 0, StageKind.BUILD)), PhaseStarted("compile")])
    assert progress.stage is None


def test_the_time_follows_the_finished_stages() -> None:
    progress, _ = after([JobOpened(JOB, False, Budget(trials=9), 0.0)])
    progress.absorb(finished(key(0, 0, StageKind.BUILD), 0, 50.0), 60.0)
    assert progress.elapsed_s(62.0) == 52.0


def test_names_are_not_markup() -> None:
    item = lane(0, best_s=1e-3)
    task = type(item.weighted.task)("0" * 32, "[red]x", "x", "1", 1e6, "{}")
    progress, now = after([LaneUpdated(type(item.weighted)(task, 1), 1, 0, 1e-3, None)])
    assert "[red]x" in "\n".join(shown(progress, now))


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(events: Iterable[Event], step_s: float) -> list[str]:
    file, clock = io.StringIO(), _Clock()
    view = LineView(Progress("net"), Console(file=file, width=80, markup=False), clock)
    for event in events:
        clock.now += step_s
        view.observe(event)
    view.flush()
    return file.getvalue().splitlines()


def test_a_log_has_a_line_per_round() -> None:
    rounds = [line for line in lines_of(a_run(rounds=30), 1.0) if "/480 trials" in line]
    assert len(rounds) == 30


def test_a_log_has_at_most_one_round_a_second_and_the_last() -> None:
    events = list(a_run(rounds=30))
    lines = lines_of(events, 0.01)
    rounds = [line for line in lines if "/480 trials" in line]
    assert len(rounds) <= 1 + 0.01 * len(events) + 1
    assert "480/480 trials" in rounds[-1]
    assert "warning: the reference kernel" in "\n".join(lines)


def test_a_log_line_has_no_control_characters() -> None:
    assert lines_of([Note("a\x1b[2J\nb")], 1.0) == ["note: a?[2J b"]


def test_a_terminal_gets_the_panel_and_its_cursor_back() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24)
    view = TerminalView(Progress("net"), console)
    view.start()
    for event in a_run(tasks=3, rounds=2):
        view.observe(event)
    time.sleep(0.05)
    view.stop()
    assert "verify winners" in file.getvalue() or "publish" in file.getvalue()
    assert file.getvalue().rstrip("\n").endswith("\x1b[?25h")


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_watching_survives_an_error(terminal: bool, quiet: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, height=24)

    def interrupted() -> None:
        with watch("net", console, quiet=quiet) as view:
            for event in a_run(tasks=2, rounds=2):
                view.observe(event)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ("\x1b" in file.getvalue()) == (terminal and not quiet)


def test_a_bar_and_a_sparkline() -> None:
    assert bar(0.5, 4) == "━━╌╌"
    assert bar(2.0, 4, ascii_only=True) == "####"
    assert sparkline([3.0, 2.0, 1.0], 20) == "█▅▁"
    assert len(sparkline([float(i) for i in range(100)], 20)) == 20
    assert sparkline([], 20) == ""
