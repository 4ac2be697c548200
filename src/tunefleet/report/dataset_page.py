"""Statistics of tuning records (`tunefleet-dataset-stats/1`) as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tunefleet.report import plots
from tunefleet.report.dataset_text import (
    device_name,
    flops_text,
    share_of_peak,
    totals_text,
    workload_text,
)
from tunefleet.report.page import meter_cell, page, section
from tunefleet.report.plots import Point
from tunefleet.report.units import (
    format_count,
    format_gflops,
    format_latency,
    format_mflop,
    format_share,
)

Stats = Mapping[str, Any]

#: Marks of a plot; of more tasks every second, third ... is drawn.
_MARKS = 1000
#: A page with more rows loads slowly and is read by nobody; the JSON file has them all.
_TASKS = 200


def dataset_page(stats: Stats, title: str) -> str:
    """The page as text: all devices in a table, then plots and tables of each."""
    sections = [_overview(stats)]
    for device in stats["devices"]:
        sections += _device(device, alone=len(stats["devices"]) == 1)
    sections.append(section("How to read it", f'<p class="prose">{escape(_NOTES)}</p>'))
    about = f"{totals_text(stats)}. {flops_text(stats)}."
    return page(title, "tuning records", about, sections)


_NOTES = (
    "A task is a workload on a target and device; a program is a task with a sequence of "
    "primitives, and sequence length counts these. A latency is the mean of a record's repeats. "
    "FLOPs are those of the anchor operator: exact where the record tells every loop of a "
    "contraction, or AutoTVM's arguments do; estimated for Winograd and transposed convolutions "
    "and for operators without contraction (one operation per element). A Winograd kernel may "
    "exceed the peak when it is given the FLOPs of the direct convolution. The fp32 peak is that "
    "of the device table, whatever the types of the records."
)


def _overview(stats: Stats) -> str:
    headings = ("records", "failed", "programs", "tasks", "length", "sketches", "GFLOP/s")
    rows = "".join(_overview_row(device) for device in stats["devices"])
    return section("Devices", _table(("device", *headings, "of fp32 peak"), rows), kind="long")


def _overview_row(device: Stats) -> str:
    length, best = device["sequence_length"], (device["throughput_gflops"] or {}).get("max")
    known = device.get("hardware")
    full = f"<small>{escape(known['name'])}</small>" if known else ""
    share = share_of_peak(device, best)
    return (
        f'<tr><td class="words">{escape(device_name(device))}{full}</td>'
        f"<td>{format_count(device['records'])}</td>"
        + meter_cell(device["failed"] / device["records"], device["failed"] / device["records"])
        + f"<td>{format_count(device['programs'])}</td><td>{format_count(device['tasks'])}</td>"
        f"<td>{length['min']:.0f} to {length['max']:.0f}"
        f"<small>median {length['median']:.0f}</small></td>"
        f"<td>{format_count(device['sequences'])}</td><td>{format_gflops(best)}</td>"
        + meter_cell(share, share or 0.0, "peak")
        + "</tr>"
    )


def _device(device: Stats, alone: bool) -> list[str]:
    name = "" if alone else device_name(device)
    every = -(-len(device["task_list"]) // _MARKS)
    some = "each task" if every == 1 else f"one of {every} tasks"
    parts = (
        ("Sequence length", "records by the number of primitives", _lengths(device)),
        ("Primitives", "occurrences in all records", _primitives(device)),
        ("Failures", f"{format_count(device['failed'])} records", _failures(device)),
        ("Latency", f"{some} from its best (green) to its median", _latencies(device)),
        ("Throughput", f"{some}'s best; hollow where FLOPs are estimated", _throughput(device)),
    )
    drawn = [
        section(_titled(what, name), content, note) for what, note, content in parts if content
    ]
    return [*drawn, _tasks(device, name)]


def _titled(what: str, name: str) -> str:
    return f"{what}: {name}" if name else what


def _lengths(device: Stats) -> str:
    counts = {int(length): count for length, count in device["sequence_lengths"].items()}
    return plots.histogram(counts, "primitives in a record")


def _primitives(device: Stats) -> str:
    rows = []
    for row in device["primitives"]:
        name = row["kind"] if row["name"] == row["kind"] else f"{row['name']} {row['kind']}"
        text = f"{format_count(row['total'])} ({row['total'] / device['records']:.2f} a record)"
        rows.append((name, float(row["total"]), text))
    return plots.bars(rows, "Occurrences of primitives")


def _failures(device: Stats) -> str:
    ordered = sorted(device["failures"].items(), key=lambda item: -item[1])
    rows = [
        (kind, float(count), f"{format_count(count)} ({format_share(count / device['records'])})")
        for kind, count in ordered
    ]
    return plots.bars(rows, "Failures by kind", "s5")


def _latencies(device: Stats) -> str:
    measured = [task for task in device["task_list"] if task["best_s"]]
    measured.sort(key=lambda task: task["best_s"])
    rows = [
        (
            task["best_s"] * 1e3,
            task["median_s"] * 1e3,
            f"{workload_text(task['workload'])}: {format_latency(task['best_s'])}, "
            f"median {format_latency(task['median_s'])}",
        )
        for task in _thinned(measured)
    ]
    return plots.ranges(rows, "ms", lambda ms: f"{ms:.6g}", "tasks, the fastest first")


def _thinned(tasks: Sequence[Stats]) -> Sequence[Stats]:
    return tasks[:: max(1, -(-len(tasks) // _MARKS))]


def _throughput(device: Stats) -> str:
    points = [
        Point(task["flops"], task["gflops"], task["flops_how"], _throughput_title(task))
        for task in _thinned(device["task_list"])
        if task["gflops"]
    ]
    peak = (device.get("hardware") or {}).get("peak_fp32_gflops")
    limit = (peak, f"fp32 peak {format_gflops(peak)} GFLOP/s") if peak else None
    return plots.scatter(
        points, ("FLOPs of a task", plots.format_tick), ("GFLOP/s", plots.format_tick), limit
    )


def _throughput_title(task: Stats) -> str:
    return (
        f"{workload_text(task['workload'])}: {format_gflops(task['gflops'])} GFLOP/s, "
        f"{format_mflop(task['flops'])} MFLOP ({task['flops_how']})"
    )


def _tasks(device: Stats, name: str) -> str:
    tasks: Sequence[Stats] = device["task_list"]
    headings = ("records", "failed", "MFLOP", "best", "median", "GFLOP/s", "of fp32 peak")
    rows = "".join(_task_row(device, task) for task in tasks[:_TASKS])
    note = f"{format_count(len(tasks))}, most records first"
    if len(tasks) > _TASKS:
        note += f"; the first {_TASKS}"
    return section(_titled("Tasks", name), _table(("workload", *headings), rows), note, "long")


def _task_row(device: Stats, task: Stats) -> str:
    share = share_of_peak(device, task["gflops"])
    sure = "" if task["flops_how"] == "exact" else f"<small>{task['flops_how']}</small>"
    return (
        f'<tr><td class="words">{escape(workload_text(task["workload"]))}</td>'
        f"<td>{format_count(task['records'])}</td>"
        f"<td>{format_share(1 - task['valid'] / task['records'])}</td>"
        f"<td>{format_mflop(task['flops'])}{sure}</td>"
        f"<td>{format_latency(task['best_s'])}</td><td>{format_latency(task['median_s'])}</td>"
        f"<td>{format_gflops(task['gflops'])}</td>" + meter_cell(share, share or 0.0) + "</tr>"
    )


def _table(headings: Sequence[str], rows: str) -> str:
    first, *others = headings
    head = f'<th class="words">{escape(first)}</th>' + "".join(
        f"<th>{escape(heading)}</th>" for heading in others
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
