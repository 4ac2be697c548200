"""The tasks of a network as a table that can be sorted, and as points below the machine's
limits."""

from __future__ import annotations

from html import escape

from tunefleet.core.result import RunResult, TaskResult
from tunefleet.core.roofline import Bandwidth
from tunefleet.report.page import meter_cell, section
from tunefleet.report.plots import PlotLine, Point, format_tick, scatter
from tunefleet.report.sorting import SORTABLE
from tunefleet.report.units import (
    TIMES,
    UNKNOWN,
    format_bytes,
    format_count,
    format_gflops,
    format_latency,
    format_mflop,
    format_share,
    significant,
)
from tunefleet.report.words import by_share, source_text

_ROOF_STEPS = 16

#: Heading, its class, and what it means.
_HEADINGS = (
    ("task", "words", "operators and shapes"),
    ("runs", "", "how often the network runs it in one inference"),
    ("trials", "", "candidates that were measured or failed"),
    ("MFLOP", "", "millions of floating-point operations of one run"),
    ("before", "", "latency of the default schedule"),
    ("tuned", "", "latency of what is delivered"),
    ("gain", "", "before over tuned"),
    ("GFLOP/s", "", "throughput of what is delivered"),
    ("of limit", "", "the least time that the machine needs, over the latency"),
    ("of latency", "", "share of the sum of all tasks"),
    ("from", "source", "where its program comes from"),
)


def tasks(result: RunResult) -> str:
    """The section with the table; "" without tasks."""
    rows = by_share(result.tasks)
    if not rows:
        return ""
    largest = max(task.network_share or 0.0 for task in rows) or 1.0
    disturbed = result.why_disturbed is not None
    heads = "".join(
        f'<th scope="col"{f" class={kind!r}" if kind else ""} title="{escape(meaning)}">'
        f"{escape(name)}</th>"
        for name, kind, meaning in _HEADINGS
    )
    table = (
        f'<div class="wide"><table class="{SORTABLE}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(_row(task, largest, disturbed) for task in rows)}</tbody></table></div>"
    )
    return section("Tasks", table, _note(result), kind="long")


def _note(result: RunResult) -> str:
    measured = sum(task.latency_us is not None for task in result.tasks)
    count = len(result.tasks)
    note = f"{format_count(measured)} of {format_count(count)} tasks measured"
    if result.kernels_ms:
        note += f"; kernels take {format_latency(result.kernels_ms / 1e3)} per inference"
    return note


def _row(task: TaskResult, largest: float, disturbed: bool) -> str:
    before, tuned = _seconds(task.default_us), _seconds(task.latency_us)
    gain = before / tuned if before and tuned and not disturbed else None
    failed = f"<small>{format_count(task.failed)} failed</small>" if task.failed else ""
    share, limit = task.network_share, task.limit_share
    cells = [
        _cell(format_count(task.weight), task.weight),
        _cell(format_count(task.trials), task.trials, failed),
        _cell(format_mflop(task.flops), task.flops),
        _cell(format_latency(before), before),
        _cell(format_latency(tuned), tuned),
        _cell(UNKNOWN if gain is None else f"{significant(gain)}{TIMES}", gain),
        _cell(format_gflops(task.gflops), task.gflops),
        meter_cell(limit, limit or 0.0, "peak"),
        meter_cell(share, (share or 0.0) / largest),
        f'<td class="source">{escape(source_text(task))}</td>',
    ]
    name, shapes = escape(task.name or UNKNOWN).replace("+", "+<wbr>"), escape(task.shapes)
    return f'<tr><td class="words">{name}<small>{shapes}</small></td>{"".join(cells)}</tr>'


def _cell(text: str, value: float | None, below: str = "") -> str:
    data = "" if value is None else f' data-value="{value:.9g}"'
    return f"<td{data}>{escape(text)}{below}</td>"


def _seconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def roofline(result: RunResult) -> str:
    """The section with the drawing; "" where no limit was measured or no task lies below one."""
    points = [point for task in result.tasks if (point := _point(task)) is not None]
    peak = result.peak_gflops
    if not points or not peak or not result.bandwidths:
        return ""
    intensities = [point.x for point in points]
    ridge = peak / min(each.gb_s for each in result.bandwidths)
    low, high = min(intensities) / 2, max([*intensities, ridge]) * 2
    roofs = [_roof(level, peak, low, high) for level in result.bandwidths]
    drawing = scatter(
        points,
        ("FLOPs per byte that a task has to move", format_tick),
        ("GFLOP/s", format_tick),
        lines=[PlotLine(((low, peak), (high, peak)), f"{format_gflops(peak)} GFLOP/s"), *roofs],
    )
    content = f'<div class="wide">{drawing}</div>{_words(result)}'
    return section("How far from the machine's limit", content)


def _point(task: TaskResult) -> Point | None:
    if not task.flops or not task.bytes or not task.gflops or task.limit_share is None:
        return None
    title = (
        f"{task.name} {task.shapes}: {format_gflops(task.gflops)} GFLOP/s, moves "
        f"{format_bytes(task.bytes)}, {format_share(task.limit_share)} of its limit"
    )
    kind = "" if task.source != "default" else "estimated"
    return Point(task.flops / task.bytes, task.gflops, kind, title)


def _roof(level: Bandwidth, peak: float, low: float, high: float) -> PlotLine:
    """From the left edge to where computing limits."""
    end = min(peak / level.gb_s, high)
    start = min(low, end / 2)
    # Enough of them to be straight or bent as the axes are.
    steps = [start * (end / start) ** (i / _ROOF_STEPS) for i in range(_ROOF_STEPS + 1)]
    name = f"{level.level}, {significant(level.gb_s)} GB/s"
    return PlotLine(tuple((x, x * level.gb_s) for x in steps), name)


def _words(result: RunResult) -> str:
    levels = "; ".join(_level_text(level) for level in result.bandwidths)
    text = (
        "Each point is a task: filled where the search found its program, hollow where the default "
        "schedule stays. A task can be no faster than the line above it: the flat one is what the "
        "threads reach in float32, the slanted ones how fast they read from each level of the "
        f"memory ({levels}). All were measured on this machine before the search. A task reads "
        "each of its tensors at least once, from the smallest level that holds them together."
    )
    return f'<p class="prose">{escape(text)}</p>'


def _level_text(level: Bandwidth) -> str:
    held = f" up to {format_bytes(level.size)}" if level.size else ""
    return f"{level.level}{held}: {significant(level.gb_s)} GB/s"
