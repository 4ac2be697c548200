from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable
from typing import get_args

import pytest
from rich.console import Console

from tunefleet.cli.live import LineView, TerminalView, watch
from tunefleet.cli.overview import Overview
from tunefleet.cli.progress import Progress
from tunefleet.cli.view import Panel, bar, phase_line, sparkline
from tunefleet.core.budget import Budget
from tunefleet.core.events import (
    Event,
    JobContinued,
    JobEnded,
    JobHeld,
    JobOpened,
    LaneUpdated,
    Note,
    PhaseStarted,
    StageProgressed,
    StageStarted,
)
from tunefleet.core.phases import PHASES, Forecast
from tunefleet.core.stage import StageKind

from .streams import JOB, a_run, after, finished, key, lane, lines_of_all, several, weighted


def shown(progress: Progress, now: float, *, width: int = 80, height: int = 40) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, height=height).print(Panel(progress, now))
    return file.getvalue().splitlines()


def test_the_stream_holds_every_kind_of_event() -> None:
    assert set(get_args(Event)) == {type(event) for event in a_run()}


@pytest.mark.slow
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
    started = PhaseStarted("tune")
    progress, now = after([opened, started, lane(0, trials=40, failed=2, best_s=1e-3)])
    text = "\n".join(shown(progress, now))
    assert "resumed" in text
    assert "trials 40 of 100" in text
    assert "tuned 5:01" in text
    assert "failed 2" in text


def test_the_estimate_waits_for_every_task() -> None:
    progress, now = after([lane(0, best_s=1e-3), lane(1)])
    assert progress.latency_s is None
    assert "1 of 2 tasks measured" in "\n".join(shown(progress, now))
    progress.absorb(lane(1, best_s=2e-3), now)
    assert progress.latency_s == pytest.approx(
        1e-3 * weighted(0).weight + 2e-3 * weighted(1).weight
    )


def test_the_share_of_peak_is_shown_when_the_peak_is_known() -> None:
    progress, now = after([lane(0, best_s=weighted(0).task.flops / 100e9)])
    assert "peak" not in "\n".join(shown(progress, now))
    progress.peak_gflops = 200.0
    assert "50.0 %" in "\n".join(shown(progress, now))


def test_stages_that_run_at_once_are_kept_apart() -> None:
    build, profile = key(0, 1, StageKind.BUILD), key(1, 0, StageKind.PROFILE)
    stream: list[Event] = [
        lane(0),
        lane(1),
        StageStarted(build, "host0"),
        StageStarted(profile, "cpu0"),
    ]
    stream += [StageProgressed(profile, 5, 16), StageProgressed(build, 12, 32)]
    progress, now = after([PhaseStarted("tune"), *stream])
    shown_now = next(line for line in shown(progress, now) if line.startswith("now"))
    assert shown_now.rstrip() == (
        "now     build conv2d+add+maximum 12/32 \N{MIDDLE DOT} profile conv2d+add 5/16"
    )
    progress.absorb(finished(profile, 16, 9.0), now)
    assert list(progress.running) == [build]


def test_names_are_not_markup() -> None:
    item = lane(0, best_s=1e-3)
    task = type(item.weighted.task)("0" * 32, "[red]x", "x", "1", 1e6, "{}")
    progress, now = after([LaneUpdated(type(item.weighted)(task, 1), 1, 0, 1e-3, None)])
    assert "[red]x" in "\n".join(shown(progress, now))


def lines_of(events: Iterable[Event], step_s: float) -> list[str]:
    return lines_of_all(["net"], ((0, event) for event in events), step_s)


def test_a_log_has_a_line_per_round() -> None:
    rounds = [line for line in lines_of(a_run(rounds=30), 10.0) if "/480 trials" in line]
    assert len(rounds) == 30


def test_a_log_has_at_most_one_round_in_ten_seconds_and_the_last() -> None:
    events = list(a_run(rounds=30))
    lines = lines_of(events, 0.1)
    rounds = [line for line in lines if "/480 trials" in line]
    assert len(rounds) <= 1 + 0.01 * len(events) + 1
    assert "480/480 trials" in rounds[-1]
    assert "warning: the reference kernel" in "\n".join(lines)


def test_a_log_line_has_no_control_characters() -> None:
    assert lines_of([Note("a\x1b[2J\nb")], 1.0) == ["note: a?[2J b"]


def test_a_terminal_gets_the_panel_and_its_cursor_back() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24)
    with watch(["net"], console, quiet=False) as view:
        for event in a_run(tasks=3, rounds=2):
            view.observer(0)(event)
        time.sleep(0.05)
    assert "verify winners" in file.getvalue() or "measure" in file.getvalue()
    assert file.getvalue().rstrip("\n").endswith("\x1b[?25h")


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_watching_survives_an_error(terminal: bool, quiet: bool, count: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, height=24)

    def interrupted() -> None:
        with watch(["net"] * count, console, quiet=quiet) as view:
            for event in a_run(tasks=2, rounds=2):
                view.observer(count - 1)(event)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ("\x1b" in file.getvalue()) == (terminal and not quiet)


def test_what_ends_the_thread_that_draws_is_raised() -> None:
    def clock() -> float:
        if threading.current_thread() is threading.main_thread():
            return 0.0
        raise ValueError("no time")

    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    view = TerminalView(Overview(["net"]), console, clock)
    view.start()
    view.stop()
    with pytest.raises(ValueError, match="no time"):
        view.check()


def test_a_bar_and_a_sparkline() -> None:
    assert bar(0.5, 4) == "━━╌╌"
    assert bar(2.0, 4, ascii_only=True) == "####"
    assert sparkline([3.0, 2.0, 1.0], 20) == "█▅▁"
    assert len(sparkline([float(i) for i in range(100)], 20)) == 20
    assert sparkline([], 20) == ""


def test_lines_of_several_networks_begin_with_their_name() -> None:
    lines = lines_of_all(["zoo:a", "x/b.onnx"], several(2), 1.0)
    assert {"a", "b.onnx"} == {line.partition(": ")[0] for line in lines if "cpu0" not in line}
    assert (
        "b.onnx: warning: the reference kernel moved by 4.1 %, a batch is measured again" in lines
    )
    assert "warning: cpu0: pausing 30 s: the reference kernel moved by 40 %" in lines
    assert "a: done" in lines


def test_all_networks_together_have_at_most_one_round_in_ten_seconds_and_their_last() -> None:
    events = list(several(3))
    lines = lines_of_all(["a", "b", "c"], events, 0.1)
    rounds = [line for line in lines if "/320 trials" in line]
    assert len(rounds) <= 0.01 * len(events) + 1 + 3
    for name in "abc":
        assert any(line.startswith(f"{name}: ") and "320/320" in line for line in rounds)


def test_a_round_waits_no_longer_than_those_of_other_networks() -> None:
    events = [(i, finished(key(0, n, StageKind.UPDATE), 0, 1.0)) for n in range(9) for i in (0, 1)]
    names = [line[0] for line in lines_of_all(["a", "b"], events, 7.0)]
    assert names[:6] == ["a", "b"] * 3


def test_a_log_says_every_ten_seconds_how_far_an_import_is() -> None:
    file, now = io.StringIO(), [0.0]
    console = Console(file=file, width=80, markup=False)
    view = LineView(Overview(["net"]), console, lambda: now[0])
    known = Forecast({"import": 90.0})
    view.observer(0)(JobOpened(JOB, False, Budget(seconds=60), 0.0, known))
    view.observer(0)(PhaseStarted("import"))
    for _ in range(25):
        now[0] += 1.0
        view.beat()
    assert file.getvalue().splitlines()[1:] == [
        "phase 1 of 8: import",
        "phase 1 of 8: import, 0:10 of about 1:30",
        "phase 1 of 8: import, 0:20 of about 1:30",
    ]


def test_a_log_says_the_time_left_of_the_whole_command() -> None:
    known = Forecast({phase: 10.0 for phase in PHASES if phase != "tune"})
    opened = JobOpened(JOB, False, Budget(seconds=60), 0.0, known)
    progress, now = after([opened, PhaseStarted("import")])
    assert phase_line(progress, now + 4) == (
        "phase 1 of 8: import, 0:04 of about 0:10, left about 2:06"
    )


def test_what_is_judged_is_measured_before_it_is_published() -> None:
    opened = JobOpened(JOB, False, Budget(seconds=60), 0.0, is_judged=True)
    progress, now = after([opened, PhaseStarted("measure")])
    assert phase_line(progress, now).startswith("phase 7 of 8: measure")
    progress.absorb(PhaseStarted("publish"), now)
    assert phase_line(progress, now).startswith("phase 8 of 8: publish")


def test_the_panel_counts_tuning_only() -> None:
    known = Forecast({phase: 10.0 for phase in PHASES if phase != "tune"})
    opened = JobOpened(JOB, False, Budget(seconds=60), 0.0, known)
    progress, now = after([opened, PhaseStarted("import")])
    text = "\n".join(shown(progress, now + 5))
    assert "tuned 0:00 of 1:00   left about 2:05" in text
    assert "phase   1 of 8: import ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌ 0:05 of about 0:10" in text


def test_the_panel_of_a_first_run_says_what_is_left_of_tuning() -> None:
    opened = JobOpened(JOB, False, Budget(seconds=60), 0.0)
    progress, now = after([opened, PhaseStarted("import")])
    text = "\n".join(shown(progress, now + 5))
    assert "left" not in text
    assert "phase   1 of 8: import 0:05" in text
    progress.absorb(PhaseStarted("tune"), now)
    assert "tuned 0:05 of 1:00   tuning left about 0:55" in "\n".join(shown(progress, now + 5))


def test_quiet_names_the_network_that_a_warning_is_about() -> None:
    file = io.StringIO()
    with watch(["a", "b"], Console(file=file, width=80), quiet=True) as view:
        view.observer(0)(Note("just so"))
        view.observer(1)(Note("look", warning=True))
    assert file.getvalue() == "b: warning: look\n"


def test_quiet_tells_that_a_full_disk_holds_a_network() -> None:
    file = io.StringIO()
    with watch(["net"], Console(file=file, width=80), quiet=True) as view:
        view.observer(0)(JobHeld("the disk is full"))
        view.observer(0)(JobContinued())
        view.observer(0)(JobHeld("by its user", by_user=True))
    assert file.getvalue() == "warning: paused: the disk is full\n"


def test_a_line_tells_why_a_network_failed() -> None:
    several = [(1, JobEnded("it\ndiffers"))]
    assert lines_of_all(["a", "b"], several, 1.0) == ["b: failed: it differs"]
    # Of one network it is the command's last line.
    assert lines_of([JobEnded("it\ndiffers")], 1.0) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_events_may_come_from_any_thread(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, height=24)
    with watch(["a", "b", "c"], console, quiet=False) as view:

        def tell(index: int) -> None:
            for event in a_run(tasks=4, rounds=20, job=f"{index:032x}"):
                view.observer(index)(event)

        threads = [threading.Thread(target=tell, args=(index,)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [job.trials for job in view.overview.jobs] == [320] * 3
        assert view.shares().keys() == {"host0", "cpu0"}
