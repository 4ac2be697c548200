"""One self-contained HTML page about a result: no script, no network, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tunefleet.core.result import RunResult, TaskResult, to_json
from tunefleet.core.statistics import Interval
from tunefleet.report import svg
from tunefleet.report.page import meter_cell, page, pairs, section
from tunefleet.report.units import (
    TIMES,
    UNKNOWN,
    format_budget,
    format_count,
    format_difference,
    format_gflops,
    format_interval,
    format_latency,
    format_mflop,
    format_seconds,
    format_share,
    format_some,
    interval_digits,
    significant,
)
from tunefleet.report.words import (
    HOW_MEASURED,
    STAGE_NAMES,
    by_share,
    caches_text,
    device_text,
    difference_basis,
    outside_lines,
    ratio_text,
    slower_text,
    source_text,
    toolchain_text,
    verdict,
)

_STAGE_CLASSES = 11


def render_html(result: RunResult) -> str:
    """The page as text; what is not known is left out."""
    sections = (
        _headline(result),
        _curve(result),
        _wall(result),
        _tasks(result),
        _failures(result),
        _conditions(result),
        section("How it was measured", f'<p class="prose">{escape(HOW_MEASURED)}</p>'),
    )
    name = result.network.name or "network"
    return page(name, "tunefleet report", _place(result), sections, _identity(result))


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
        rows = [(each.name, "untuned", each.latency_ms) for each in beside]
        rows.append(("tuned", "tuned", tuned))
        content += svg.interval_bars([(n, k, i, format_interval(i, "ms")) for n, k, i in rows])
    if result.delivered:
        good, text = verdict(result)
        content += f'<p><span class="badge{" good" if good else ""}">{escape(text)}</span></p>'
    else:
        content += "<p>The network was not compiled in this run.</p>"
    if not tuned:
        content += '<p class="prose">It was not measured end to end.</p>'
    return f"<section>{content}</section>"


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
        "Tuning curve", drawing, "estimated latency: the sum of each task's best, times its weight"
    )


def _wall(result: RunResult) -> str:
    wall = {stage: seconds for stage, seconds in result.wall.items() if seconds}
    if not wall:
        return ""
    total = sum(wall.values())
    order = [*STAGE_NAMES, *sorted(set(wall) - set(STAGE_NAMES))]
    stages = [(name, wall[name]) for name in order if name in wall]
    colours = {n: f"s{i % _STAGE_CLASSES}" for i, (n, _) in enumerate(stages)}
    names = {n: STAGE_NAMES.get(n, n) for n, _ in stages}
    drawing = svg.stacked_bar(
        [(colours[n], f"{names[n]}: {format_seconds(s)}", s) for n, s in stages]
    )
    items = "".join(
        f'<li><span class="key {colours[n]}"></span><span>{escape(names[n])}</span>'
        f'<span>{format_seconds(s)}</span><span class="share">{format_share(s / total)}</span></li>'
        for n, s in stages
    )
    whole = format_seconds(result.wall_s or total)
    return section(
        "Where the time went", f'{drawing}<ul class="legend">{items}</ul>', f"{whole} in all"
    )


def _tasks(result: RunResult) -> str:
    tasks = by_share(result.tasks)
    if not tasks:
        return ""
    largest = max(task.network_share or 0.0 for task in tasks) or 1.0
    headings = (
        *("task", "runs", "MFLOP", "trials", "failed", "latency", "GFLOP/s"),
        *("of peak", "of latency", "sum", "from"),
    )
    kinds = {"task": ' class="words"', "from": ' class="source"'}
    heads = "".join(f"<th{kinds.get(h, '')}>{h}</th>" for h in headings)
    rows, total = [], 0.0
    for task in tasks:
        total += task.network_share or 0.0
        rows.append(_task_row(task, total, largest))
    table = (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    return section("Tasks", table, _tasks_note(result, tasks), kind="long")


def _tasks_note(result: RunResult, tasks: Sequence[TaskResult]) -> str:
    note = f"{format_count(len(tasks))} tasks by their share of the latency"
    if result.peak_gflops:
        note += f"; peak {format_gflops(result.peak_gflops)} GFLOP/s, measured"
    if result.kernels_ms:
        note += f"; kernels take {format_latency(result.kernels_ms / 1e3)} per inference"
    return note


def _task_row(task: TaskResult, total: float, largest: float) -> str:
    share, peak = task.network_share, task.peak_share
    cells = (
        format_count(task.weight),
        format_mflop(task.flops),
        format_count(task.trials),
        format_count(task.failed) if task.failed else "",
        format_latency(None if task.latency_us is None else task.latency_us / 1e6),
        format_gflops(task.gflops),
    )
    name, shapes = escape(task.name or UNKNOWN), escape(task.shapes)
    return (
        f'<tr><td class="words">{name}<small>{shapes}</small></td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + meter_cell(peak, peak or 0.0, "peak")
        + meter_cell(share, (share or 0.0) / largest)
        + f"<td><i>{format_share(None if share is None else total)}</i></td>"
        + f'<td class="source">{escape(source_text(task))}</td></tr>'
    )


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
