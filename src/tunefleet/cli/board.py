"""Several networks that are tuned at once as one table, with the resources they share."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from tunefleet.cli.overview import Overview
from tunefleet.cli.progress import Progress, Running
from tunefleet.cli.view import SEPARATOR, sparkline, stage_text
from tunefleet.report.grid import Grid
from tunefleet.report.units import format_clock, format_count, format_latency

#: Columns of the table with the width from which there is room for them.
_COLUMNS = {
    "state": 0,
    "trials": 0,
    "tuned": 60,
    "latency": 0,
    "trend": 60,
    "failed": 72,
    "course": 100,
    "now": 120,
}
_LEFT = ("state", "course", "now")
_SPARK_WIDTH = 12
_RESOURCES = 6
#: Title, heading, rule, caption, the line before the resources, and one to spare.
_OTHER_LINES = 6
_FEWEST_ROWS = 2
_STYLES = {"failed": "red", "paused": "yellow", "done": "green", "waiting": "dim"}


class Board:
    """The live view of several networks at one moment; fits any width from 40 columns."""

    def __init__(self, overview: Overview, now: float) -> None:
        self._overview = overview
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        jobs = self._overview.jobs
        room = console.height - _OTHER_LINES
        resources = self._resources(max(2, min(_RESOURCES, room // 2)))
        room -= len(resources)
        spare = max(0, room - _FEWEST_ROWS)
        notes = self._notes()[-spare:] if spare else []
        shown = _most_active(jobs, max(1, room - len(notes)))
        parts: list[Text | Table] = [
            self._title(),
            self._table(shown, options.max_width, options.ascii_only),
        ]
        if resources:
            parts += [Text(""), *resources]
        parts += notes
        for part in parts:
            if isinstance(part, Text):
                part.no_wrap, part.overflow = True, "ellipsis"
        yield Group(*parts)

    def _title(self) -> Text:
        jobs, now = self._overview.jobs, self._now
        text = Text().append(f"{len(jobs)} networks", style="bold")
        text.append(f"   trials {format_count(sum(job.trials for job in jobs))}")
        if self._overview.began is not None:
            text.append(f"   time {format_clock(now - self._overview.began)}")
        left = self._overview.left_s(now)
        if left is not None:
            text.append(f"   tuning left about {format_clock(left)}")
        return text

    def _table(self, shown: Sequence[Progress], width: int, ascii_only: bool) -> Table:
        names = [name for name, least in _COLUMNS.items() if width >= least]
        if ascii_only and "course" in names:
            names.remove("course")
        table = Grid()
        table.expand = True
        table.add_column("network", no_wrap=True, overflow="ellipsis", ratio=2, min_width=6)
        for name in names:
            table.add_column(
                "" if name == "course" else name,
                justify="left" if name in _LEFT else "right",
                no_wrap=True,
                overflow="ellipsis",
                ratio=3 if name == "now" else None,
            )
        for job in shown:
            cells = self._cells(job)
            table.add_row(Text(job.network), *(cells.get(name, "") for name in names))
        hidden = len(self._overview.jobs) - len(shown)
        if hidden:
            networks = "network" if hidden == 1 else "networks"
            table.caption = Text(f"and {hidden} more {networks}", style="dim")
        return table

    def _cells(self, job: Progress) -> dict[str, Text]:
        cells = {
            "state": Text(job.state, style=_STYLES.get(job.state, "bold")),
            "now": Text(_doing(job)),
        }
        if job.budget is None:
            return cells
        trials = format_count(job.trials)
        if job.budget.trials is not None:
            trials += f"/{format_count(job.budget.trials)}"
        latency = Text(format_latency(job.latency_s), style="bold green")
        if job.latency_s is None:
            latency = Text(f"{job.measured}/{len(job.lanes)} tasks", style="dim")
        return cells | {
            "trials": Text(trials),
            "tuned": Text(format_clock(job.elapsed_s(self._now))),
            "latency": latency,
            "trend": Text("" if job.trend is None else f"{job.trend * 100:+.1f} %"),
            "failed": Text(format_count(job.failed) if job.failed else "", style="dim"),
            "course": Text(sparkline(job.history, _SPARK_WIDTH), style="cyan"),
        }

    def _resources(self, most: int) -> list[Text]:
        overview = self._overview
        shares = overview.usage.shares(self._now)
        names = list(dict.fromkeys([*shares, *overview.resting]))
        shown = names if len(names) <= most else names[: most - 1]
        width = max(map(len, shown), default=0)
        running = overview.resources()
        lines = []
        for name in shown:
            line = Text(f"{name:<{width}}  used {shares.get(name, 0.0):>4.0%}   ")
            lines.append(line.append(self._runs(name, running.get(name, []))))
        if len(shown) < len(names):
            lines.append(Text(f"and {len(names) - len(shown)} more resources", style="dim"))
        return lines

    def _runs(self, name: str, stages: Sequence[tuple[Progress, Running]]) -> Text:
        if stages:
            return Text(
                SEPARATOR.join(f"{j.network} {stage_text(j, stage)}" for j, stage in stages)
            )
        if name in self._overview.resting:
            event, until = self._overview.resting[name]
            return Text(f"pausing {format_clock(until - self._now)}: {event.reason}", "yellow")
        return Text("idle", style="dim")

    def _notes(self) -> list[Text]:
        """What was told last, and why networks failed."""
        notes = [
            Text(told.line(), style="yellow" if told.warning else "dim")
            for told in self._overview.notes
        ]
        for job in self._overview.jobs:
            if job.ended is not None and job.ended.error:
                notes.append(Text(f"{job.network}: failed: {job.ended.error}", style="red"))
        return notes


def _most_active(jobs: Sequence[Progress], room: int) -> list[Progress]:
    """As many jobs as there is room for, in their order; those that ended are left out first."""
    ranked = sorted(range(len(jobs)), key=lambda i: (jobs[i].ended is not None, i))
    return [jobs[i] for i in sorted(ranked[:room])]


def _doing(job: Progress) -> str:
    if job.ended is not None:
        return job.ended.error
    if job.held is not None:
        return job.held.reason
    if job.running:
        return SEPARATOR.join(stage_text(job, stage) for stage in job.running.values())
    if job.step is not None:
        return f"{job.step.text} {job.step.done}/{job.step.total}"
    return ""
