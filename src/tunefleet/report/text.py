"""A result as tables for a terminal: values of rich, which whoever calls prints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.report.grid import Grid
from tunefleet.report.units import (
    TIMES,
    UNKNOWN,
    format_budget,
    format_count,
    format_gflops,
    format_interval,
    format_latency,
    format_mflop,
    format_seconds,
    format_share,
)
from tunefleet.report.words import (
    SHARE_OF_PEAK,
    STAGE_NAMES,
    baselines,
    device_text,
    outside_lines,
    source_text,
    verdict,
)

ResultJson = Mapping[str, Any]

_BAR = 24
#: Kernels that are shown.
_KERNELS = 20


def pairs(rows: Sequence[tuple[str, str | Text]]) -> Table:
    """Names and values below each other."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def summary_table(result: ResultJson) -> Table:
    """What was tuned, what came of it, and under which conditions."""
    network = result.get("network") or {}
    rows: list[tuple[str, str | Text]] = [
        ("network", Text(str(network.get("name", UNKNOWN)), style="bold")),
        ("target", str(result.get("target", UNKNOWN))),
        ("device", device_text(result.get("device"))),
    ]
    rows += _latency_rows(result)
    if result.get("delivered"):
        good, text = verdict(result)
        rows.append(("delivered", Text(text, style="green" if good else "yellow")))
    if result.get("job"):
        rows.append(("budget", format_budget(result.get("budget"))))
        rows.append(("trials", _trials_text(result)))
        rows += _failure_rows(result)
    if result.get("wall_s") is not None:
        rows.append(("wall time", format_seconds(result["wall_s"])))
    rows += [("noted", str(note)) for note in result.get("notes") or ()]
    for line in outside_lines(result.get("outside")):
        rows.append(("outside" if not line.startswith(" ") else "", line.strip()))
    return pairs(rows)


def _latency_rows(result: ResultJson) -> list[tuple[str, str | Text]]:
    rows: list[tuple[str, str | Text]] = []
    if result.get("tuned_ms"):
        rows.append(("latency", format_interval(result["tuned_ms"], "ms")))
    rows += _baseline_rows(result)
    if result.get("kernels_ms") is not None:
        rows.append(("in kernels", format_latency(result["kernels_ms"] / 1e3)))
    return rows


def _baseline_rows(result: ResultJson) -> list[tuple[str, str | Text]]:
    """The gain over each baseline, the first in bold: it is what the user has today."""
    rows: list[tuple[str, str | Text]] = []
    for index, each in enumerate(baselines(result)):
        gain, latency = each.get("speedup"), format_interval(each["latency_ms"], "ms")
        times = f"{format_interval(gain, TIMES)} as fast, " if gain else ""
        style = "bold" if index == 0 else ""
        rows.append((f"beside {each['name']}", Text(f"{times}{latency}", style=style)))
    return rows


def _trials_text(result: ResultJson) -> str:
    failures = result.get("failures") or {}
    text = format_count(result.get("trials"))
    if failures:
        kinds = ", ".join(f"{k.replace('_', ' ')} {n}" for k, n in sorted(failures.items()))
        text += f", {format_count(sum(failures.values()))} failed ({kinds})"
    if result.get("stopped"):
        text += f"; {result['stopped']}"
    return text


def _failure_rows(result: ResultJson) -> list[tuple[str, str | Text]]:
    """What failed trials said most often, by kind."""
    rows: list[tuple[str, str | Text]] = []
    for kind, texts in sorted((result.get("failure_texts") or {}).items()):
        text, count = texts[0]
        times = f" ({format_count(count)} times)" if count > 1 else ""
        rows.append((kind.replace("_", " "), Text(f"{text}{times}", style="dim")))
    return rows


def networks_table(networks: Sequence[str], outcomes: Sequence[ResultJson | str]) -> Table:
    """A row per network: what came of it, or nothing where its outcome is an error's text."""
    table = Grid("Networks")
    table.add_column("network", no_wrap=True, overflow="ellipsis", min_width=8)
    for heading in ("beside", "tuned", "speed-up", "trials"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("delivered", no_wrap=True)
    for network, outcome in zip(networks, outcomes, strict=True):
        if isinstance(outcome, str):
            missing = [UNKNOWN] * 4
            table.add_row(Text(network), *missing, Text("failed", style="red"))
            continue
        table.add_row(
            Text(network),
            _median_ms(next((b["latency_ms"] for b in baselines(outcome)), None)),
            _median_ms(outcome.get("tuned_ms")),
            Text(format_interval(outcome.get("speedup"), TIMES), style="bold"),
            format_count(outcome.get("trials")),
            Text(str(outcome.get("delivered") or UNKNOWN)),
        )
    return table


def _median_ms(interval: Mapping[str, Any] | None) -> str:
    return format_latency(interval["median"] / 1e3 if interval else None)


def _task_name(task: Mapping[str, Any]) -> Text:
    """Operators and shapes: many tasks of a network differ in nothing but their shapes."""
    name = Text(str(task.get("name", UNKNOWN)))
    if task.get("shapes"):
        name.append(f" {task['shapes']}", style="dim")
    return name


def tasks_table(result: ResultJson, *, limit: int | None = None) -> Table:
    """The tasks by their share of the network's latency, largest first."""
    tasks = sorted(result.get("tasks") or [], key=lambda t: -(t.get("network_share") or 0.0))
    shown = tasks if limit is None else tasks[:limit]
    table = Grid("Tasks", optional=("from", "Σ", "failed", TIMES, "GFLOP/s", "trials"))
    table.add_column("task", overflow="fold", ratio=1, min_width=24)
    for heading in (TIMES, "trials", "failed", "latency", "GFLOP/s", SHARE_OF_PEAK, "share", "Σ"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    total = 0.0
    for task in shown:
        share = task.get("network_share")
        total += share or 0.0
        latency = task.get("latency_us")
        table.add_row(
            _task_name(task),
            format_count(task.get("weight")),
            format_count(task.get("trials")),
            format_count(task.get("failed")),
            format_latency(None if latency is None else latency / 1e6),
            format_gflops(task.get("gflops")),
            format_share(task.get("peak_share")),
            format_share(share),
            format_share(total),
            Text(source_text(task)),
        )
    if len(shown) < len(tasks):
        rest = len(tasks) - len(shown)
        table.caption = Text(f"and {rest} more task{'' if rest == 1 else 's'}", style="dim")
    return table


def wall_table(result: ResultJson) -> Table:
    """Where the wall time went, largest first."""
    wall = {k: v for k, v in (result.get("wall") or {}).items() if v}
    total = sum(wall.values())
    table = Grid("Wall time")
    table.add_column("stage", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for stage, seconds in sorted(wall.items(), key=lambda item: -item[1]):
        share = seconds / total
        table.add_row(
            Text(STAGE_NAMES.get(stage, stage)),
            format_seconds(seconds),
            format_share(share),
            Text("▇" * max(1, round(_BAR * share)), style="cyan"),
        )
    return table


def evaluation_table(evaluation: ResultJson) -> Table:
    """What `evaluate` measured."""
    rows: list[tuple[str, str | Text]] = [
        ("network", Text(str(evaluation.get("network", UNKNOWN)), style="bold")),
        ("target", str(evaluation.get("target", UNKNOWN))),
        ("latency", format_interval(evaluation.get("tuned_ms"), "ms")),
    ]
    rows += _baseline_rows(evaluation)
    return pairs(rows)


def kernels_table(evaluation: ResultJson) -> Table:
    """The kernels of a network by the time they take in one inference."""
    kernels = evaluation.get("kernels") or []
    total = sum(k["ms"] for k in kernels) or 1.0
    table = Grid("Kernels")
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for kernel in kernels[:_KERNELS]:
        table.add_row(
            Text(str(kernel["name"])),
            format_latency(kernel["ms"] / 1e3),
            format_share(kernel["ms"] / total),
        )
    if len(kernels) > _KERNELS:
        table.caption = Text(f"and {len(kernels) - _KERNELS} more", style="dim")
    return table


def listing_table(listing: ResultJson) -> Table:
    """The tasks of a network that is not tuned yet, by their share of its FLOPs."""
    title = f"{listing.get('network', '')} on {listing.get('target', '')}"
    table = Grid(title, optional=("Σ", "#", "MFLOP", TIMES))
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("task", overflow="fold", ratio=2, min_width=12)
    table.add_column("shapes", overflow="fold", ratio=3, min_width=12)
    for heading in (TIMES, "MFLOP", "share", "Σ"):
        table.add_column(heading, justify="right", no_wrap=True)
    total = 0.0
    for rank, task in enumerate(listing.get("tasks") or [], 1):
        total += task.get("share") or 0.0
        table.add_row(
            str(rank),
            Text(str(task.get("name", UNKNOWN))),
            Text(str(task.get("shapes", ""))),
            format_count(task.get("weight")),
            format_mflop(task.get("flops")),
            format_share(task.get("share")),
            format_share(total),
        )
    return table


def jobs_table(jobs: Sequence[ResultJson]) -> Table:
    """The jobs of a home, in the given order."""
    table = Grid(optional=("tuning", "trials", "started", "run", "speed-up"))
    for heading in ("job", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("network", overflow="fold")
    table.add_column("started", no_wrap=True)
    for heading in ("tuning", "trials", "speed-up"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("run", no_wrap=True)
    for job in jobs:
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(job["created_at"]))
        speedup = job.get("speedup")
        table.add_row(
            job["job"][:8],
            str(job["state"]),
            Text(" ".join(str(job["network"]).split())),
            started,
            format_seconds(job.get("elapsed_s")),
            format_count(job.get("trials")),
            UNKNOWN if speedup is None else f"{speedup:.2f}{TIMES}",
            str(job.get("run") or ""),
        )
    return table


def checks_table(examination: ResultJson) -> Table:
    """What `doctor` found, with advice below what is not in order."""
    marks = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "red")}
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in examination.get("checks") or []:
        text, style = marks.get(check["severity"], (str(check["severity"]), "red"))
        value = Text(str(check["value"]))
        if check.get("advice"):
            value.append(f"\n{check['advice']}", style=style)
        table.add_row(Text(text, style=style), Text(str(check["name"])), value)
    return table
