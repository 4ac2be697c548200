"""Statistics of tuning records (`tunefleet-dataset-stats/1`) as tables for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.core.identity import UNNAMED
from tunefleet.core.ids import is_digest
from tunefleet.report.grid import Grid
from tunefleet.report.palette import short
from tunefleet.report.units import (
    TIMES,
    UNKNOWN,
    format_count,
    format_gflops,
    format_latency,
    format_mflop,
    format_share,
    format_some,
)

Stats = Mapping[str, Any]

#: Characters of a workload beside the figures of its task.
_ROOM = 44
#: Rows of lengths, and the width of the bar of all records.
_BINS, _BAR = 12, 40


def device_name(device: Stats) -> str:
    """The name that the records have, or that they have none."""
    return str(device["device"]) or UNNAMED


def devices_table(stats: Stats) -> Table:
    """A row per device: records, failures, duplicates, tasks, lengths and throughput."""
    table = Grid("Devices")
    table.add_column("device", no_wrap=True, overflow="ellipsis", min_width=6)
    for heading in ("records", "valid", "failed", "programs", "tasks", "length", "median",
                    "best GFLOP/s", "of fp32 peak"):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for device in stats["devices"]:
        best = (device["throughput_gflops"] or {}).get("max")
        length = device["sequence_length"]
        table.add_row(
            Text(device_name(device)),
            format_count(device["records"]),
            format_count(device["valid"]),
            format_share(device["failed"] / device["records"]),
            format_count(device["programs"]),
            format_count(device["tasks"]),
            f"{length['min']:.0f} to {length['max']:.0f}",
            f"{length['median']:.0f}",
            format_gflops(best),
            format_share(share_of_peak(device, best)),
        )
    return table


def share_of_peak(device: Stats, gflops: float | None) -> float | None:
    """Of the fp32 peak of the device's row in the device table, where it has one."""
    peak = (device.get("hardware") or {}).get("peak_fp32_gflops")
    return gflops / peak if gflops and peak else None


def primitives_table(device: Stats) -> Table:
    """How often each primitive occurs: in all, for each task, in a record."""
    table = Grid(f"Primitives of {device_name(device)}")
    table.add_column("primitive", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in ("occurrences", "share", "per task", "median", "in records", "most", "tasks"):
        table.add_column(heading, justify="right", no_wrap=True)
    total = sum(row["total"] for row in device["primitives"]) or 1
    for row in device["primitives"]:
        tasks = row["per_task"]
        table.add_row(
            Text(short(row["kind"], 24)),
            Text(row["name"] if row["name"] != row["kind"] else ""),
            format_count(row["total"]),
            format_share(row["total"] / total),
            f"{tasks['min']:,.0f} to {tasks['max']:,.0f}",
            f"{tasks['median']:,.0f}",
            format_share(row["records"] / device["records"]),
            format_count(row["most_in_a_record"]),
            format_count(row["tasks"]),
        )
    return table


def lengths_table(device: Stats) -> Table:
    """Records by sequence length, neighbouring lengths together where there are many."""
    counts = {int(length): count for length, count in device["sequence_lengths"].items()}
    low, high = min(counts), max(counts)
    width = -(-(high - low + 1) // _BINS)
    table = Grid(f"Sequence lengths of {device_name(device)}")
    for heading in ("primitives", "records", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for start in range(low, high + 1, width):
        last = min(start + width - 1, high)
        count = sum(counts.get(length, 0) for length in range(start, last + 1))
        share = count / device["records"]
        table.add_row(
            str(start) if start == last else f"{start} to {last}",
            format_count(count),
            format_share(share),
            Text("\N{LOWER SEVEN EIGHTHS BLOCK}" * round(_BAR * share), style="cyan"),
        )
    return table


def failures_table(stats: Stats) -> Table:
    """Failures by kind, a column per device."""
    table = Grid("Failures")
    table.add_column("kind", no_wrap=True)
    devices = [device for device in stats["devices"] if device["failed"]]
    for device in devices:
        table.add_column(Text(short(device_name(device), 18)), justify="right", no_wrap=True)
    totals = stats["failures"]
    for kind in sorted(totals, key=lambda kind: -totals[kind]):
        counts = [device["failures"].get(kind, 0) for device in devices]
        table.add_row(kind, *(format_count(n) if n else UNKNOWN for n in counts))
    return table


def tasks_table(device: Stats, limit: int) -> Table:
    """The tasks with most records: FLOPs, latency and throughput."""
    table = Grid(f"Tasks of {device_name(device)}")
    table.add_column("workload", no_wrap=True)
    for heading in ("records", "failed", "MFLOP", "", "best", "median", f"{TIMES} best", "GFLOP/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    tasks = device["task_list"]
    for task in tasks[:limit]:
        table.add_row(
            Text(short(workload_text(task["workload"]), _ROOM)),
            format_count(task["records"]),
            format_share(1 - task["valid"] / task["records"]),
            format_mflop(task["flops"]),
            task["flops_how"],
            format_latency(task["best_s"]),
            format_latency(task["median_s"]),
            _ratio(task),
            format_gflops(task["gflops"]),
        )
    if len(tasks) > limit:
        table.caption = Text(f"and {len(tasks) - limit:,} more", style="dim")
    return table


def _ratio(task: Stats) -> str:
    return f"{task['median_s'] / task['best_s']:.2f}" if task["best_s"] else UNKNOWN


def totals_text(stats: Stats) -> str:
    """One line: what there is in all."""
    repeated = stats["records"] - stats["programs"]
    return (
        f"{format_some(stats['records'], 'record')} of {format_some(stats['tasks'], 'task')} on "
        f"{format_some(len(stats['devices']), 'device')} from "
        f"{format_some(stats['files'], 'file')}; "
        f"{format_count(stats['failed'])} failed; {format_count(repeated)} measure a program "
        f"again, {format_count(stats['identical_records'])} of them are identical records"
    )


def flops_text(stats: Stats) -> str:
    """One line: how sure the FLOPs are."""
    how = {name: sum(d["flops"][name] for d in stats["devices"]) for name in _HOW}
    return "FLOPs of tasks: " + ", ".join(f"{format_count(how[name])} {name}" for name in _HOW)


_HOW = ("exact", "estimated", "unknown")


def workload_text(workload: str) -> str:
    """A workload key in short: `3458e754 128x768 3072x768`, `conv2d_nchw.cuda 1x3x224x224 ...`."""
    try:
        value = json.loads(workload)
    except ValueError:
        return short(workload, 80)
    if not isinstance(value, list) or not value:
        return short(workload, 80)
    name = str(value[0])
    if is_digest(name):
        name = name[:8]
    return " ".join([name, *filter(None, map(_argument_text, value[1:]))])


def _argument_text(argument: Any) -> str:
    if isinstance(argument, list) and argument[:1] == ["TENSOR"]:
        argument = next((item for item in argument if isinstance(item, list)), [])
    if isinstance(argument, list):
        return _shape_text(argument)
    return "" if argument is None or isinstance(argument, dict) else str(argument)


def _shape_text(shape: Sequence[Any]) -> str:
    if all(isinstance(item, int) for item in shape):
        return "x".join(map(str, shape))
    return " ".join(filter(None, map(_argument_text, shape)))
