"""A timeline as a self-contained HTML page: the drawing, its resources and its jobs in figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tunefleet.report.gantt import gantt_svg
from tunefleet.report.page import meter_cell, page, pairs, section
from tunefleet.report.timeline import Bar, Timeline
from tunefleet.report.units import format_count, format_seconds
from tunefleet.scheduler.bounds import waiting


def gantt_page(
    timeline: Timeline,
    title: str,
    about: str = "",
    facts: Sequence[tuple[str, str]] = (),
    kicker: str = "tunefleet schedule",
) -> str:
    """The page as text. `about` stands below the title and `kicker` above it, `facts` are names and
    values."""
    drawing = gantt_svg(timeline, "")  # the page has it as its heading
    svg = drawing[drawing.index("<svg") :]  # inside a page it needs no prolog
    sections = (
        section("Timeline", f'<div class="paper">{svg}</div>{_reading(timeline)}', kind="full"),
        section("Figures", pairs(facts)) if facts else "",
        _resources(timeline),
        _jobs(timeline),
    )
    return page(title, kicker, about, sections)


def _reading(timeline: Timeline) -> str:
    """How to read the drawing."""
    one = len(timeline.bars_of_jobs()) == 1
    colours = "Colours are kinds of stages" if one else "Colours are jobs, shades kinds of stages"
    text = (
        "Each row is a resource. Each bar is one attempt of a stage of a task, or of a step of the "
        f"network, from its start to its end. {colours}; the letters in bars are those of the "
        "legend. A row with more bars than can be drawn shows the share of each short time."
    )
    return f'<p class="prose">{text}</p>'


def _resources(timeline: Timeline) -> str:
    rows = timeline.rows()
    used = timeline.utilisation()
    away = dict.fromkeys(rows, 0.0)
    for gap in timeline.gaps:
        away[gap.resource_id] = away.get(gap.resource_id, 0.0) + gap.end_s - gap.start_s
    lines = [
        f'<tr><td class="words">{escape(name)}</td><td>{format_count(_stages(bars))}</td>'
        f"<td>{format_seconds(_seconds(bars))}</td>"
        f"<td>{format_seconds(away[name]) if away[name] else ''}</td>"
        f"{meter_cell(used[name], used[name])}</tr>"
        for name, bars in rows.items()
    ]
    headings = ("resource", "stages", "at work", "unavailable", "in use")
    return section("Resources", _table(headings, lines), f"{format_seconds(timeline.end_s)} in all")


def _jobs(timeline: Timeline) -> str:
    lines = [_job_row(job, bars) for job, bars in timeline.bars_of_jobs().items() if bars]
    headings = ("job", "tasks", "stages", "at work", "waited, median", "waited, 95 %", "from", "to")
    return section("Jobs", _table(headings, lines), kind="long")


def _job_row(job: str, bars: Sequence[Bar]) -> str:
    waits = [bar.waited_s for bar in bars if bar.waited_s is not None]
    waited = waiting(waits) if waits else None
    cells = (
        format_count(len({bar.task for bar in bars if bar.task})),
        format_count(_stages(bars)),
        format_seconds(_seconds(bars)),
        format_seconds(waited.median_s if waited else None),
        format_seconds(waited.p95_s if waited else None),
        format_seconds(min(bar.start_s for bar in bars)),
        format_seconds(max(bar.end_s for bar in bars)),
    )
    return (
        f'<tr><td class="words">{escape(job)}</td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
    )


def _stages(bars: Sequence[Bar]) -> int:
    return sum(bool(bar.task) for bar in bars)


def _seconds(bars: Sequence[Bar]) -> float:
    return sum(bar.end_s - bar.start_s for bar in bars)


def _table(headings: Sequence[str], lines: Sequence[str]) -> str:
    first, *others = headings
    heads = f'<th class="words">{escape(first)}</th>'
    heads += "".join(f"<th>{escape(name)}</th>" for name in others)
    return (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
