"""The trace of a run (`tunefleet-trace/1`) as tables, as a picture and as a page."""

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

Trace = Mapping[str, Any]


def trace_timeline(trace: Trace) -> Timeline:
    labels = {job["job"]: job["label"] for job in trace["jobs"]}
    bars = tuple(
        Bar(
            span["resource"],
            labels[span["job"]],
            span["stage"],
            span["task"],
            span["start_s"],
            span["end_s"],
            span["attempt"],
            span["waited_s"] or 0.0,
        )
        for span in trace["spans"]
    )
    slots = {r["resource"]: r["slots"] for r in trace["resources"]}
    return Timeline(bars, tuple(slots), tuple(labels.values()), slots=slots)


def trace_png(trace: Trace) -> bytes:
    return gantt_png(trace_timeline(trace), _title(trace))


def trace_page(trace: Trace) -> str:
    """Self-contained HTML: the picture, and its figures."""
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(trace["started_at"]))
    about = " ".join([f"Started {started}.", *trace_notes(trace)])
    return gantt_page(trace_timeline(trace), _title(trace), about, trace_facts(trace))


def trace_facts(trace: Trace) -> list[tuple[str, str]]:
    """Names and values of the whole run."""
    waiting = trace["waiting"]
    waits = f"{format_seconds(waiting['mean_s'])}, 95 % within {format_seconds(waiting['p95_s'])}"
    return [
        ("tuning", format_seconds(trace["tuning_s"])),
        ("stages", format_count(sum(bool(span["task_id"]) for span in trace["spans"]))),
        ("jobs", format_count(len(trace["jobs"]))),
        ("waited per stage", waits if waiting["stages"] else format_seconds(None)),
    ]


def trace_notes(trace: Trace) -> list[str]:
    """What a reader of the figures must know, in sentences."""
    notes = []
    if trace["pauses"]:
        notes.append(f"The time axis is tuning time: {_pauses(trace)}.")
    if trace["unplaced"]:
        are = _stages_are(trace["unplaced"])
        notes.append(f"{are} shown as host or device by kind: nobody wrote down where.")
    if trace["waiting"]["stages"]:
        notes.append(
            "A stage waits from the end of the one before it in its round; selections and later "
            "attempts are not counted."
        )
    return notes


def resources_table(trace: Trace) -> Table:
    table = Grid("Resources")
    table.add_column("resource", no_wrap=True)
    for heading in ("at once", "stages", "at work", "in use"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in trace["resources"]:
        table.add_row(
            short(row["resource"], 32),
            format_count(row["slots"]),
            format_count(row["stages"]),
            format_seconds(row["busy_s"]),
            format_share(row["utilisation"]),
        )
    return table


def jobs_table(trace: Trace) -> Table:
    """Stages and seconds of each job by kind."""
    table = Grid("Jobs")
    table.add_column("job", no_wrap=True)
    kinds = list(trace["jobs"][0]["stages"])
    for heading in (*kinds, "attempts after the first"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in trace["jobs"]:
        cells = [_ran(job["stages"][kind], job["seconds"][kind]) for kind in kinds]
        table.add_row(short(job["label"], 32), *cells, format_count(job["retried"]))
    return table


def _ran(stages: int, seconds: float) -> str:
    return f"{format_count(stages)} in {format_seconds(seconds)}" if stages else UNKNOWN


def _title(trace: Trace) -> str:
    title = f"{trace['jobs'][0]['label']}: {format_seconds(trace['tuning_s'])} of tuning"
    return f"{title} ({_pauses(trace)})" if trace["pauses"] else title


def _pauses(trace: Trace) -> str:
    """`1 pause of 3 h 05 min is cut out`."""
    pauses: Sequence[Mapping[str, float]] = trace["pauses"]
    length = format_seconds(sum(pause["seconds"] for pause in pauses))
    if len(pauses) == 1:
        return f"1 pause of {length} is cut out"
    return f"{len(pauses)} pauses of {length} in all are cut out"


def _stages_are(count: int) -> str:
    return "1 stage is" if count == 1 else f"{format_count(count)} stages are"
