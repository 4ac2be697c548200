"""The timeline of a run (`tunefleet-timeline/2`) as tables, as a picture and as a page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from tunefleet.report.gantt import gantt_png
from tunefleet.report.gantt_page import gantt_page
from tunefleet.report.grid import Grid
from tunefleet.report.palette import short
from tunefleet.report.timeline import Bar, Timeline
from tunefleet.report.units import UNKNOWN, format_count, format_seconds, format_share

RunTimeline = Mapping[str, Any]


def chart_of(timeline: RunTimeline) -> Timeline:
    labels = {job["job"]: job["label"] for job in timeline["jobs"]}
    bars = tuple(
        Bar(
            span["resource"],
            labels[span["job"]],
            span["stage"],
            span["task_id"],
            span["start_s"],
            span["end_s"],
            span["attempt"],
            span["waited_s"],
        )
        for span in timeline["spans"]
    )
    slots = {r["resource"]: r["slots"] for r in timeline["resources"]}
    return Timeline(bars, tuple(slots), tuple(labels.values()), slots=slots)


def timeline_png(timeline: RunTimeline) -> bytes:
    return gantt_png(chart_of(timeline), _title(timeline))


def timeline_page(timeline: RunTimeline) -> str:
    """Self-contained HTML: the picture, and its figures."""
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(timeline["started_at"]))
    about = " ".join([f"Started {started}.", *timeline_notes(timeline)])
    chart, facts = chart_of(timeline), timeline_facts(timeline)
    return gantt_page(chart, _title(timeline), about, facts, "tunefleet timeline")


def timeline_facts(timeline: RunTimeline) -> list[tuple[str, str]]:
    """Names and values of the whole run."""
    waiting = timeline["waiting"]
    median, most = (format_seconds(waiting[key]) for key in ("median_s", "p95_s"))
    waits = f"{median} at the median, {most} at the 95th percentile"
    return [
        ("tuning", format_seconds(timeline["tuning_s"])),
        ("stages", format_count(sum(bool(span["task_id"]) for span in timeline["spans"]))),
        ("jobs", format_count(len(timeline["jobs"]))),
        ("waited per stage", waits if waiting["stages"] else format_seconds(None)),
    ]


def timeline_notes(timeline: RunTimeline) -> list[str]:
    """What a reader of the figures must know, in sentences."""
    notes = []
    if timeline["pauses"]:
        notes.append(f"The time axis is tuning time: {_pauses(timeline)}.")
    if timeline["unplaced"]:
        are = _stages_are(timeline["unplaced"])
        notes.append(f"{are} shown as host or device by kind: nobody wrote down where.")
    if timeline["waiting"]["stages"]:
        notes.append(
            "A stage waits from the end of the one before it in its round; selections and later "
            "attempts are not counted."
        )
    return notes


def resources_table(timeline: RunTimeline) -> Table:
    table = Grid("Resources")
    table.add_column("resource", no_wrap=True)
    for heading in ("at once", "stages", "at work", "in use"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in timeline["resources"]:
        table.add_row(
            short(row["resource"], 32),
            format_count(row["slots"]),
            format_count(row["stages"]),
            format_seconds(row["busy_s"]),
            format_share(row["utilisation"]),
        )
    return table


def jobs_table(timeline: RunTimeline) -> Table:
    """Stages and seconds of each job by kind."""
    table = Grid("Jobs")
    table.add_column("job", no_wrap=True)
    kinds = list(timeline["jobs"][0]["stages"])
    for heading in (*kinds, "attempts after the first"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in timeline["jobs"]:
        cells = [_ran(job["stages"][kind], job["seconds"][kind]) for kind in kinds]
        table.add_row(short(job["label"], 32), *cells, format_count(job["retried"]))
    return table


def _ran(stages: int, seconds: float) -> str:
    return f"{format_count(stages)} in {format_seconds(seconds)}" if stages else UNKNOWN


def _title(timeline: RunTimeline) -> str:
    title = f"{timeline['jobs'][0]['label']}: {format_seconds(timeline['tuning_s'])} of tuning"
    return f"{title} ({_pauses(timeline)})" if timeline["pauses"] else title


def _pauses(timeline: RunTimeline) -> str:
    """`1 pause of 3 h 05 min is cut out`."""
    pauses: Sequence[Mapping[str, float]] = timeline["pauses"]
    length = format_seconds(sum(pause["seconds"] for pause in pauses))
    if len(pauses) == 1:
        return f"1 pause of {length} is cut out"
    return f"{len(pauses)} pauses of {length} in all are cut out"


def _stages_are(count: int) -> str:
    return "1 stage is" if count == 1 else f"{format_count(count)} stages are"
