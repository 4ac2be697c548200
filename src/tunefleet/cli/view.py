"""Progress as something to look at: a panel for a terminal, a line for a log."""

from __future__ import annotations

import math

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from tunefleet.cli.progress import TREND_ROUNDS, Progress, Running
from tunefleet.core.events import LaneUpdated
from tunefleet.core.phases import TUNE
from tunefleet.core.stage import STAGE_ORDER
from tunefleet.report.grid import Grid
from tunefleet.report.units import (
    UNKNOWN,
    format_clock,
    format_count,
    format_gflops,
    format_latency,
    format_share,
)

_ROWS = 15
#: Columns below which numbers are left out, and from which there is room for shapes.
_NARROW, _WIDE = 60, 100
#: Between stages that run at once.
SEPARATOR = " \N{MIDDLE DOT} "
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH = 20
_BAR_WIDTH = 20
#: Lines above the table, and one to spare.
_LINES_ABOVE = 6
#: Lines around the table's rows: above them, its heading and rule, the caption, one to spare.
_OTHER_LINES = 13


class Panel:
    """The live view at one moment; fits any width from 40 columns and any height."""

    def __init__(self, progress: Progress, now: float) -> None:
        self._progress = progress
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        progress = self._progress
        room = console.height - bool(outlook_text(progress))
        spare = max(0, room - _LINES_ABOVE - 1)
        notes = list(progress.notes)[-spare:] if spare else []
        room -= _OTHER_LINES + len(notes)
        parts: list[Text | Table] = [
            self._title(),
            self._counts(),
            self._latency(options.ascii_only),
            *([Text(f"at end  {text}")] if (text := outlook_text(progress)) else []),
        ]
        ascii_only = options.ascii_only
        parts += [self._phase(ascii_only), self._stage(ascii_only), self._spent()]
        if progress.lanes and room > 0:
            parts += [Text(""), self._tasks(min(_ROWS, room), options.max_width)]
        for note in notes:
            style = "yellow" if note.warning else "dim"
            parts.append(Text(("warning: " if note.warning else "") + note.text, style=style))
        for part in parts:
            if isinstance(part, Text):
                part.no_wrap, part.overflow = True, "ellipsis"
        yield Group(*parts)

    def _title(self) -> Text:
        progress = self._progress
        text = Text(progress.network, style="bold")
        if progress.job_id:
            text.append(f"  job {progress.job_id[:8]}", style="dim")
        if progress.resumed:
            text.append("  resumed", style="cyan")
        return text

    def _counts(self) -> Text:
        progress, now = self._progress, self._now
        budget = progress.budget
        if budget is None:
            return Text("")
        text = Text(f"trials {format_count(progress.trials)}")
        if budget.trials is not None:
            text.append(f" of {format_count(budget.trials)}")
        text.append(f"   tuned {format_clock(progress.elapsed_s(now))}")
        if budget.seconds is not None:
            text.append(f" of {format_clock(budget.seconds)}")
        left = left_text(progress, now)
        if left:
            text.append(f"   {left}")
        if progress.failed:
            text.append(f"   failed {format_count(progress.failed)}", style="dim")
        return text

    def _latency(self, ascii_only: bool) -> Text:
        progress = self._progress
        if not progress.lanes:
            return Text("")
        latency = progress.latency_s
        if latency is None:
            measured = f"{progress.measured} of {len(progress.lanes)} tasks measured"
            return Text(f"latency {UNKNOWN}   {measured}")
        text = Text("latency ").append(format_latency(latency), style="bold green")
        if progress.budget and progress.budget.target_latency_s:
            text.append(f" (target {format_latency(progress.budget.target_latency_s)})")
        trend = progress.trend
        if trend is not None:
            rounds = min(TREND_ROUNDS, len(progress.history) - 1)
            text.append(f"   {trend * 100:+.1f} % in {rounds} round{'' if rounds == 1 else 's'}")
            if not ascii_only:
                text.append(f"   {sparkline(progress.history, _SPARK_WIDTH)}", style="cyan")
        return text

    def _phase(self, ascii_only: bool) -> Text:
        progress = self._progress
        text = Text("phase   ").append(phase_text(progress), style="bold")
        if progress.steps_now:
            spent, usual = progress.in_phase_s(self._now), progress.phase_s
            if usual:
                text.append(f" {bar(spent / usual, _BAR_WIDTH, ascii_only)}")
            text.append(f" {phase_time(progress, self._now)}")
        return text

    def _stage(self, ascii_only: bool) -> Text:
        progress = self._progress
        running = list(progress.running.values())
        text = Text("now     ")
        if len(running) == 1:
            stage = running[0]
            text.append(str(stage.key.kind), style="bold")
            _append_bar(text, stage.done, stage.total, ascii_only)
            text.append(f"   {progress.task_name(stage.key)}")
        elif running:
            text.append(SEPARATOR.join(stage_text(progress, stage) for stage in running))
        elif progress.step is not None:
            text.append(progress.step.text)
            _append_bar(text, progress.step.done, progress.step.total, ascii_only)
        else:
            return Text("")
        return text

    def _spent(self) -> Text:
        spent = self._progress.spent
        total = sum(spent.values())
        if not total:
            return Text("")
        shares = (f"{kind} {spent.get(kind, 0.0) / total:.0%}" for kind in STAGE_ORDER)
        return Text("spent   " + "   ".join(shares), style="dim")

    def _tasks(self, rows: int, width: int) -> Table:
        progress = self._progress
        peak = progress.peak_gflops
        columns = ["trials", "fail", "best", "GFLOP/s", *(["peak"] if peak else []), "share", "Σ"]
        if width < _NARROW:  # what a narrow terminal can do without
            columns = [c for c in columns if c in ("trials", "best", "share")]
        table = Grid()
        table.expand = True
        table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=2)
        shapes = width >= _WIDE
        if shapes:
            table.add_column("shapes", style="dim", no_wrap=True, overflow="ellipsis", ratio=3)
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        ranked, total, known = progress.ranked(), 0.0, progress.known_latency_s
        running = {key.task_id for key in progress.running}
        for lane in ranked[:rows]:
            share = _share(lane, known)
            total += share or 0.0
            cells = _cells(lane, peak) | {"share": format_share(share), "Σ": format_share(total)}
            active = lane.weighted.task.task_id in running
            names = [_task_name(lane), *([Text(lane.weighted.task.shapes)] if shapes else [])]
            numbers = [cells[column] for column in columns]
            table.add_row(*names, *numbers, style="bold" if active else None)
        if len(ranked) > rows:
            table.caption = Text(f"and {len(ranked) - rows} more tasks", style="dim")
        return table


def phase_text(progress: Progress) -> str:
    """`3 of 8: tune`."""
    phases = progress.phases
    if progress.phase not in phases:
        return progress.phase or "starting"
    return f"{phases.index(progress.phase) + 1} of {len(phases)}: {progress.phase}"


def phase_time(progress: Progress, now: float) -> str:
    """How long a phase of steps has run, and how long it took in earlier runs."""
    usual = progress.phase_s
    of = "" if usual is None else f" of about {format_clock(math.ceil(usual))}"
    return f"{format_clock(progress.in_phase_s(now))}{of}"


def left_text(progress: Progress, now: float) -> str:
    """The time left: of the whole command where earlier runs tell it, else of its tuning."""
    if progress.ended is not None:
        return ""
    left = progress.left_s(now)
    if left is not None:
        return f"left about {format_clock(left)}"
    tuning = progress.tuning_left_s(now) if progress.phase == TUNE else None
    return "" if tuning is None else f"tuning left about {format_clock(tuning)}"


def stage_text(progress: Progress, stage: Running) -> str:
    """What runs and how far it is: `build conv2d_3 12/32`."""
    count = f" {stage.done}/{stage.total}" if stage.total else ""
    return f"{stage.key.kind} {progress.task_name(stage.key)}{count}"


def _append_bar(text: Text, done: int, total: int, ascii_only: bool) -> None:
    if total > 0:
        text.append(f" {bar(done / total, _BAR_WIDTH, ascii_only)} {done}/{total}")


def _task_name(lane: LaneUpdated) -> Text:
    weight = lane.weighted.weight
    return Text(f"{weight} x {lane.weighted.task.name}" if weight > 1 else lane.weighted.task.name)


def _share(lane: LaneUpdated, known_s: float) -> float | None:
    if lane.best_s is None or not known_s:
        return None
    return lane.best_s * lane.weighted.weight / known_s


def _cells(lane: LaneUpdated, peak_gflops: float | None) -> dict[str, str]:
    gflops = lane.weighted.task.flops / lane.best_s / 1e9 if lane.best_s else None
    # What is beyond the peak of float32 is of another kind: bytes, or fewer operations.
    share = gflops / peak_gflops if gflops and peak_gflops else None
    return {
        "trials": format_count(lane.trials),
        "fail": format_count(lane.failed) if lane.failed else "",
        "best": format_latency(lane.best_s),
        "GFLOP/s": format_gflops(gflops),
        "peak": format_share(share if share and share <= 1 else None),
    }


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    """`share` of a bar of `width` characters."""
    full = round(max(0.0, min(1.0, share)) * width)
    return ("#" if ascii_only else "━") * full + ("." if ascii_only else "╌") * (width - full)


def sparkline(values: list[float], width: int) -> str:
    """The course of positive values in at most `width` characters, the last one always shown."""
    if not values:
        return ""
    count = min(width, len(values))
    steps = [round((i + 1) * len(values) / count) - 1 for i in range(count)]
    picked = [values[i] for i in steps]
    low, span = min(picked), max(picked) - min(picked)
    levels = (round((v - low) / span * (len(_SPARKS) - 1)) if span else 0 for v in picked)
    return "".join(_SPARKS[level] for level in levels)


def phase_line(progress: Progress, now: float) -> str:
    """How far a phase of steps is, in one line for a log."""
    parts = [f"phase {phase_text(progress)}, {phase_time(progress, now)}", left_text(progress, now)]
    return ", ".join(part for part in parts if part)


def outlook_text(progress: Progress) -> str:
    """`2.10 ms (1.95 ms - 2.30 ms), target 71 %`: the latest forecast, while the search goes on."""
    outlook = progress.outlook
    if outlook is None or progress.phase != TUNE:
        return ""
    at_end, probability = outlook.latency_s, outlook.probability
    between = f"{format_latency(at_end.p10)} - {format_latency(at_end.p90)}"
    target = "" if probability is None else f", target {format_share(probability)}"
    return f"{format_latency(at_end.p50)} ({between}){target}"


def round_line(progress: Progress, now: float) -> str:
    """The state after a round in one line for a log."""
    budget, latency = progress.budget, progress.latency_s
    of = f"/{budget.trials}" if budget and budget.trials is not None else ""
    minutes = f" of {format_clock(budget.seconds)}" if budget and budget.seconds else ""
    parts = [
        f"tuned {format_clock(progress.elapsed_s(now))}{minutes}",
        f"{progress.trials}{of} trials",
        f"{progress.failed} failed" if progress.failed else "",
        f"latency {format_latency(latency)}"
        if latency is not None
        else f"{progress.measured}/{len(progress.lanes)} tasks measured",
        left_text(progress, now),
    ]
    return ", ".join(part for part in parts if part)
