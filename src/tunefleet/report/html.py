"""One self-contained HTML page about a result: no script, no network, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

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
    interval_digits,
    significant,
)
from tunefleet.report.words import (
    HOW_MEASURED,
    STAGE_NAMES,
    baselines,
    caches_text,
    device_text,
    difference_basis,
    outside_lines,
    source_text,
    toolchain_text,
    verdict,
)

ResultJson = Mapping[str, Any]

_STAGE_CLASSES = 11


def render_html(result: ResultJson) -> str:
    """The page as text. `result` has schema tunefleet-result/3; what is missing is left out."""
    name = _network(result).get("name") or "network"
    sections = (
        _headline(result),
        _curve(result),
        _wall(result),
        _tasks(result),
        _failures(result),
        _conditions(result),
        section("How it was measured", f'<p class="prose">{escape(HOW_MEASURED)}</p>'),
    )
    return page(str(name), "tunefleet report", _place(result), sections, _identity(result))


def _network(result: ResultJson) -> ResultJson:
    return result.get("network") or {}


def _place(result: ResultJson) -> str:
    place = device_text(result.get("device"))
    threads = result.get("threads")
    if threads:
        place += f", {threads} thread{'' if threads == 1 else 's'}"
    return place


def _headline(result: ResultJson) -> str:
    tuned, beside = result.get("tuned_ms"), baselines(result)
    figures = []
    for each in beside[:1]:
        figures.append(_figure(each["name"], each["latency_ms"], " ms"))
        figures.append('<span class="arrow">→</span>')
    if tuned:
        figures.append(_figure("tuned", tuned, " ms"))
    if result.get("speedup"):
        figures.append(_figure("speed-up", result["speedup"], TIMES, "main"))
    content = f'<div class="headline">{"".join(figures)}</div>' if figures else ""
    content += "".join(
        f'<p class="warning">{escape(text)}</p>' for text in result.get("warnings") or []
    )
    if beside and tuned:
        rows = [(str(b["name"]), "untuned", b["latency_ms"]) for b in beside]
        rows.append(("tuned", "tuned", tuned))
        content += svg.interval_bars([(n, k, i, format_interval(i, "ms")) for n, k, i in rows])
    if result.get("delivered"):
        good, text = verdict(result)
        content += f'<p><span class="badge{" good" if good else ""}">{escape(text)}</span></p>'
    else:
        content += "<p>The network was not compiled in this run.</p>"
    if not tuned:
        content += '<p class="prose">It was not measured end to end.</p>'
    return f"<section>{content}</section>"


def _figure(name: str, interval: ResultJson, unit: str, kind: str = "") -> str:
    digits = interval_digits(interval)
    middle, low, high = (significant(float(interval[k]), digits) for k in ("median", "low", "high"))
    mark = f"<i>{escape(unit.strip())}</i>" if unit.startswith(" ") else escape(unit)
    return (
        f'<div class="figure {kind}"><span>{escape(name)}</span><b>{middle}{mark}</b>'
        f"<span>95 %: {low} to {high}</span></div>"
    )


def _curve(result: ResultJson) -> str:
    target_s = (result.get("budget") or {}).get("target_latency_s")
    drawing = svg.tuning_curve(result.get("curve") or [], target_s * 1e3 if target_s else None)
    if not drawing:
        return ""
    return section(
        "Tuning curve", drawing, "estimated latency: the sum of each task's best, times its weight"
    )


def _wall(result: ResultJson) -> str:
    wall = {str(k): float(v) for k, v in (result.get("wall") or {}).items() if v}
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
    whole = format_seconds(float(result.get("wall_s") or total))
    return section(
        "Where the time went", f'{drawing}<ul class="legend">{items}</ul>', f"{whole} in all"
    )


def _tasks(result: ResultJson) -> str:
    tasks = sorted(result.get("tasks") or [], key=lambda t: -(t.get("network_share") or 0.0))
    if not tasks:
        return ""
    largest = max((t.get("network_share") or 0.0 for t in tasks), default=0.0) or 1.0
    headings = (
        *("task", "runs", "MFLOP", "trials", "failed", "latency", "GFLOP/s"),
        *("of peak", "of latency", "sum", "from"),
    )
    kinds = {"task": ' class="words"', "from": ' class="source"'}
    heads = "".join(f"<th{kinds.get(h, '')}>{h}</th>" for h in headings)
    rows, total = [], 0.0
    for task in tasks:
        total += task.get("network_share") or 0.0
        rows.append(_task_row(task, total, largest))
    table = (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    return section("Tasks", table, _tasks_note(result, tasks), kind="long")


def _tasks_note(result: ResultJson, tasks: Sequence[ResultJson]) -> str:
    note = f"{format_count(len(tasks))} tasks by their share of the latency"
    if result.get("peak_gflops"):
        note += f"; peak {format_gflops(result['peak_gflops'])} GFLOP/s, measured"
    if result.get("kernels_ms"):
        note += f"; kernels take {format_latency(result['kernels_ms'] / 1e3)} per inference"
    return note


def _task_row(task: ResultJson, total: float, largest: float) -> str:
    share, peak = task.get("network_share"), task.get("peak_share")
    latency = task.get("latency_us")
    name = escape(str(task.get("name", UNKNOWN)))
    shapes = escape(str(task.get("shapes") or ""))
    cells = (
        format_count(task.get("weight")),
        format_mflop(task.get("flops")),
        format_count(task.get("trials")),
        format_count(task["failed"]) if task.get("failed") else "",
        format_latency(None if latency is None else latency / 1e6),
        format_gflops(task.get("gflops")),
    )
    return (
        f'<tr><td class="words">{name}<small>{shapes}</small></td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + meter_cell(peak, peak or 0.0, "peak")
        + meter_cell(share, (share or 0.0) / largest)
        + f"<td><i>{format_share(total)}</i></td>"
        + f'<td class="source">{escape(source_text(task))}</td></tr>'
    )


def _failures(result: ResultJson) -> str:
    failures = result.get("failures") or {}
    if not failures:
        return ""
    total, trials = sum(failures.values()), result.get("trials")
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    rows = [(str(kind).replace("_", " "), format_count(count)) for kind, count in ordered]
    for kind, texts in sorted((result.get("failure_texts") or {}).items()):
        rows += [(f"{kind.replace('_', ' ')}, {format_count(n)} times", text) for text, n in texts]
    note = f"{format_count(total)} of {format_count(trials)} trials" if trials else ""
    return section("Failed trials", pairs(rows), note)


def _conditions(result: ResultJson) -> str:
    network, device = _network(result), result.get("device") or {}
    rows = [
        ("network", ", ".join(str(network[k]) for k in ("name", "source") if network.get(k))),
        ("digest", str(network.get("digest") or "")),
        ("inputs", "; ".join(map(str, network.get("inputs") or []))),
        ("outputs", "; ".join(map(str, network.get("outputs") or []))),
        ("target", str(result.get("target") or "")),
        ("device", device_text(device) if device else ""),
        ("caches", caches_text(device)),
        ("ISA", ", ".join(map(str, device.get("isa") or []))),
        ("toolchain", toolchain_text(result.get("toolchain")) if result.get("toolchain") else ""),
        ("budget", format_budget(result["budget"]) if result.get("budget") else ""),
        ("stopped", _stopped(result)),
        ("reused", _reused(result)),
        ("difference", _difference(result)),
        ("noted", "; ".join(map(str, result.get("notes") or []))),
        ("outside", "; ".join(line.strip() for line in outside_lines(result.get("outside")))),
    ]
    return section("Conditions", pairs((n, v) for n, v in rows if v))


def _stopped(result: ResultJson) -> str:
    text = str(result.get("stopped") or "")
    return f"{text} (resumed)" if text and result.get("resumed") else text


def _reused(result: ResultJson) -> str:
    count = result.get("reused")
    return f"records of earlier jobs for {format_count(count)} tasks" if count else ""


def _difference(result: ResultJson) -> str:
    differences = result.get("difference") or {}
    known = [k for k in ("untuned", "plain", "tuned") if differences.get(k) is not None]
    parts = [f"{k} {format_difference(differences[k])}" for k in known]
    basis = difference_basis(result)
    return f"{', '.join(parts)} of the {basis} of the source framework" if parts else ""


def _identity(result: ResultJson) -> str:
    named = [(k, result.get(k)) for k in ("run", "job", "artifact")]
    return ", ".join(f"{name} {value}" for name, value in named if value)
