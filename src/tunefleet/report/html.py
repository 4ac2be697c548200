"""One self-contained HTML page about a result: no network, no script but the one that sorts its
table, everything escaped."""

from __future__ import annotations

from html import escape

from tunefleet.core.result import RunResult, to_json
from tunefleet.core.statistics import Interval
from tunefleet.report import svg, task_table
from tunefleet.report.bars import PageBar, bars
from tunefleet.report.page import page, pairs, section
from tunefleet.report.units import (
    TIMES,
    format_budget,
    format_count,
    format_difference,
    format_interval,
    format_seconds,
    format_share,
    format_some,
    interval_digits,
    significant,
)
from tunefleet.report.usage import usage
from tunefleet.report.words import (
    HOW_MEASURED,
    STAGE_NAMES,
    agreement_text,
    at_once_text,
    caches_text,
    device_text,
    difference_basis,
    figure_lines,
    outside_lines,
    ratio_text,
    slower_text,
    toolchain_text,
    verdict,
)

#: The page beside the report. The path in a result may be anybody's.
_TIMELINE = "timeline.html"


def render_html(result: RunResult) -> str:
    """The page as text; what is not known is left out."""
    sections = (
        _headline(result),
        _curve(result),
        _wall(result),
        task_table.tasks(result),
        task_table.roofline(result),
        usage(result),
        _failures(result),
        _figures(result),
        _conditions(result),
        section("How it was measured", f'<p class="prose">{escape(HOW_MEASURED)}</p>'),
    )
    name = result.network.name or "network"
    place, identity = _place(result), _identity(result)
    return page(name, "tunefleet report", place, sections, identity, sortable=bool(result.tasks))


def _place(result: RunResult) -> str:
    place = device_text(result.device)
    if result.threads:
        place += f", {format_some(result.threads, 'thread')}"
    return place


def _headline(result: RunResult) -> str:
    tuned, beside = result.tuned_ms, result.baselines
    figures = []
    for each in beside[:1]:
        figures.append(_figure(each.name, each.latency_ms, " ms"))
        figures.append('<span class="arrow">→</span>')
    if tuned:
        figures.append(_figure("tuned", tuned, " ms"))
    if result.speedup:
        figures.append(_figure("speed-up", result.speedup, TIMES, "main"))
    content = f'<div class="headline">{"".join(figures)}</div>' if figures else ""
    missing = ratio_text(None, result.why_no_speedup, result.run) if not result.speedup else ""
    lines = filter(None, (slower_text(result), missing, *result.warnings))
    content += "".join(f'<p class="warning">{escape(text)}</p>' for text in lines)
    if beside and tuned:
        rows = [_latency_bar(each.name, each.kind, each.latency_ms) for each in beside]
        content += bars([*rows, _latency_bar("tuned", "tuned", tuned)])
    if result.delivered:
        good, text = verdict(result)
        content += f'<p><span class="badge{" good" if good else ""}">{escape(text)}</span></p>'
    else:
        content += "<p>The network was not compiled in this run.</p>"
    if not tuned:
        content += '<p class="prose">It was not measured end to end.</p>'
    return f"<section>{content}</section>"


def _latency_bar(name: str, kind: str, latency: Interval) -> PageBar:
    text = format_interval(latency, "ms")
    is_main = kind in ("source", "tuned")
    return PageBar(name, kind, latency.median, text, latency.low, latency.high, is_main)


def _figure(name: str, interval: Interval, unit: str, kind: str = "") -> str:
    digits = interval_digits(interval)
    bounds = (interval.median, interval.low, interval.high)
    middle, low, high = (significant(each, digits) for each in bounds)
    mark = f"<i>{escape(unit.strip())}</i>" if unit.startswith(" ") else escape(unit)
    return (
        f'<div class="figure {kind}"><span>{escape(name)}</span><b>{middle}{mark}</b>'
        f"<span>95 %: {low} to {high}</span></div>"
    )


def _curve(result: RunResult) -> str:
    target_s = result.budget.target_latency_s if result.budget else None
    drawing = svg.tuning_curve(result.curve, target_s * 1e3 if target_s else None)
    if not drawing:
        return ""
    return section(
        "Tuning curve",
        f'<div class="wide">{drawing}</div>',
        "estimated latency: the sum of each task's best, times its weight",
    )


def _wall(result: RunResult) -> str:
    wall = {stage: seconds for stage, seconds in result.wall.items() if seconds}
    if not wall:
        return ""
    total = sum(wall.values())
    order = [*STAGE_NAMES, *sorted(set(wall) - set(STAGE_NAMES))]
    stages = [(name, wall[name]) for name in order if name in wall]
    rows = [
        PageBar(STAGE_NAMES.get(name, name), "wall", seconds, _time_text(seconds, total))
        for name, seconds in stages
    ]
    whole = format_seconds(result.wall_s or total)
    link = (
        f'<p><a href="{_TIMELINE}">Timeline</a>: where and when each stage ran.</p>'
        if result.timeline
        else ""
    )
    note = at_once_text(result) or f"{whole} in all"
    return section("Where the time went", bars(rows) + link, note)


def _time_text(seconds: float, total: float) -> str:
    return f"{format_seconds(seconds)}, {format_share(seconds / total)}"


def _failures(result: RunResult) -> str:
    if not result.failures:
        return ""
    total = sum(result.failures.values())
    ordered = sorted(result.failures.items(), key=lambda item: (-item[1], item[0]))
    rows = [(kind.replace("_", " "), format_count(count)) for kind, count in ordered]
    for kind, texts in sorted(result.failure_texts.items()):
        rows += [(f"{kind.replace('_', ' ')}, {format_count(n)} times", text) for text, n in texts]
    note = f"{format_count(total)} of {format_count(result.trials)} trials" if result.trials else ""
    return section("Failed trials", pairs(rows), note)


def _figures(result: RunResult) -> str:
    lines = figure_lines(result)
    if len(lines) < 2:
        return ""
    rows = [(name, f"{figure}: {what}") for name, figure, what in lines]
    return section("What each latency is", pairs(rows))


def _conditions(result: RunResult) -> str:
    network, device = result.network, result.device
    rows = [
        ("network", ", ".join(filter(None, (network.name, network.source)))),
        ("digest", network.digest),
        ("inputs", "; ".join(network.inputs)),
        ("outputs", "; ".join(network.outputs)),
        ("target", result.target),
        ("device", device_text(device) if device else ""),
        ("caches", caches_text(device)),
        ("ISA", ", ".join(device.isa) if device else ""),
        ("toolchain", toolchain_text(result.toolchain) if result.toolchain else ""),
        ("budget", format_budget(result.budget) if result.budget else ""),
        ("agreed", agreement_text(result.agreement, result.run) if result.agreement else ""),
        ("stopped", _stopped(result)),
        ("reused", _reused(result)),
        ("difference", _difference(result)),
        ("noted", "; ".join(result.notes)),
        ("outside", "; ".join(line.strip() for line in outside_lines(to_json(result.outside)))),
    ]
    return section("Conditions", pairs((n, v) for n, v in rows if v))


def _stopped(result: RunResult) -> str:
    text = result.stopped or ""
    return f"{text} (resumed)" if text and result.resumed else text


def _reused(result: RunResult) -> str:
    if not result.reused:
        return ""
    return f"records of earlier jobs for {format_some(result.reused, 'task')}"


def _difference(result: RunResult) -> str:
    differences = {"plain": result.difference.plain, "tuned": result.difference.tuned}
    parts = [f"{k} {format_difference(v)}" for k, v in differences.items() if v is not None]
    basis = difference_basis(result)
    return f"{', '.join(parts)} of the {basis} of the source framework" if parts else ""


def _identity(result: RunResult) -> str:
    named = [("run", result.run), ("job", result.job), ("artifact", result.artifact)]
    return ", ".join(f"{name} {value}" for name, value in named if value)
