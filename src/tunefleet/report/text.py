"""A result as tables for a terminal: values of rich, which whoever calls prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.core.result import Evaluation, MeasuredShape, RunResult, TaskResult, to_json
from tunefleet.core.statistics import Interval
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
    agreement_text,
    at_once_text,
    by_share,
    device_text,
    known_text,
    outside_lines,
    ratio_text,
    slower_text,
    source_text,
    tuned_text,
    verdict,
)

#: A listing of jobs, tasks or checks, as its command writes it to --json.
Listing = Mapping[str, Any]

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


def summary_table(result: RunResult) -> Table:
    """What was tuned, what came of it, and under which conditions."""
    slower = slower_text(result)
    rows: list[tuple[str, str | Text]] = (
        [("result", Text(slower, style="yellow"))] if slower else []
    )
    rows += [
        ("network", Text(result.network.name or UNKNOWN, style="bold")),
        ("target", result.target or UNKNOWN),
        ("device", device_text(result.device)),
        *_latency_rows(result, result.run),
    ]
    if result.kernels_ms is not None:
        rows.append(("in kernels", format_latency(result.kernels_ms / 1e3)))
    if result.agreement is not None:
        style = "green" if result.agreement.is_met else "yellow"
        rows.append(("agreed", Text(agreement_text(result.agreement, result.run), style=style)))
    if result.delivered:
        good, text = verdict(result)
        rows.append(("delivered", Text(text, style="green" if good else "yellow")))
    if result.known_share is not None:
        rows.append(("known", known_text(result)))
    if result.job:
        rows.append(("budget", format_budget(result.budget)))
        rows.append(("trials", _trials_text(result)))
        if result.tasks:
            rows.append(("tasks", tuned_text(result)))
        rows += _failure_rows(result)
    if result.wall_s is not None:
        rows.append(("wall time", format_seconds(result.wall_s)))
    rows += [("noted", note) for note in result.notes]
    for line in outside_lines(to_json(result.outside)):
        rows.append(("outside" if not line.startswith(" ") else "", line.strip()))
    return pairs(rows)


def _latency_rows(shape: MeasuredShape, run: str) -> list[tuple[str, str | Text]]:
    """The latency, and the gain over each baseline, the first in bold: it is what the user has
    today."""
    rows: list[tuple[str, str | Text]] = []
    if shape.tuned_ms:
        rows.append(("latency", format_interval(shape.tuned_ms, "ms")))
    for index, each in enumerate(shape.baselines):
        gain = ratio_text(each.speedup, each.why_no_speedup, run)
        latency = format_interval(each.latency_ms, "ms")
        text = Text(", ".join(filter(None, (gain, latency))), style="bold" if index == 0 else "")
        rows.append((f"vs. {each.name}", text))
    return rows


def _trials_text(result: RunResult) -> str:
    text = format_count(result.trials)
    if result.failures:
        kinds = ", ".join(f"{k.replace('_', ' ')} {n}" for k, n in sorted(result.failures.items()))
        text += f", {format_count(sum(result.failures.values()))} failed ({kinds})"
    if result.stopped:
        text += f"; {result.stopped}"
    return text


def _failure_rows(result: RunResult) -> list[tuple[str, str | Text]]:
    """What failed trials said most often, by kind."""
    rows: list[tuple[str, str | Text]] = []
    for kind, texts in sorted(result.failure_texts.items()):
        text, count = texts[0]
        times = f" ({format_count(count)} times)" if count > 1 else ""
        rows.append((kind.replace("_", " "), Text(f"{text}{times}", style="dim")))
    return rows


def networks_table(networks: Sequence[str], outcomes: Sequence[RunResult | str]) -> Table:
    """A row per network: what came of it, or nothing where its outcome is an error's text."""
    table = Grid("Networks")
    table.add_column("network", no_wrap=True, overflow="ellipsis", min_width=8)
    for heading in ("source", "tuned", "speed-up", "trials"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("delivered", no_wrap=True)
    agreed = any(isinstance(each, RunResult) and each.agreement for each in outcomes)
    if agreed:
        table.add_column("agreed", no_wrap=True)
    for network, outcome in zip(networks, outcomes, strict=True):
        if isinstance(outcome, str):
            missing = [UNKNOWN] * 4
            table.add_row(Text(network), *missing, Text("failed", style="red"))
            continue
        agreement = [outcome.agreement.outcome if outcome.agreement else ""] if agreed else []
        table.add_row(
            Text(network),
            _median_ms(next((each.latency_ms for each in outcome.baselines), None)),
            _median_ms(outcome.tuned_ms),
            Text(format_interval(outcome.speedup, TIMES), style="bold"),
            format_count(outcome.trials),
            Text(outcome.delivered or UNKNOWN),
            *map(Text, agreement),
        )
    return table


def _median_ms(interval: Interval | None) -> str:
    return format_latency(interval.median / 1e3 if interval else None)


def _task_name(task: TaskResult) -> Text:
    """Operators and shapes: many tasks of a network differ in nothing but their shapes."""
    name = Text(task.name or UNKNOWN)
    if task.shapes:
        name.append(f" {task.shapes}", style="dim")
    return name


def tasks_table(result: RunResult, *, limit: int | None = None) -> Table:
    """The tasks by their share of the network's latency, largest first."""
    tasks = by_share(result.tasks)
    shown = tasks if limit is None else tasks[:limit]
    table = Grid("Tasks", optional=("from", "Σ", "failed", TIMES, "GFLOP/s", "trials"))
    table.add_column("task", overflow="fold", ratio=1, min_width=24)
    for heading in (TIMES, "trials", "failed", "latency", "GFLOP/s", SHARE_OF_PEAK, "share", "Σ"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    total = 0.0
    for task in shown:
        total += task.network_share or 0.0
        table.add_row(
            _task_name(task),
            format_count(task.weight),
            format_count(task.trials),
            format_count(task.failed),
            format_latency(None if task.latency_us is None else task.latency_us / 1e6),
            format_gflops(task.gflops),
            format_share(task.peak_share),
            format_share(task.network_share),
            format_share(None if task.network_share is None else total),
            Text(source_text(task)),
        )
    if len(shown) < len(tasks):
        rest = len(tasks) - len(shown)
        table.caption = Text(f"and {rest} more task{'' if rest == 1 else 's'}", style="dim")
    return table


def wall_table(result: RunResult) -> Table:
    """Where the time went, largest first: stages that ran at once count each."""
    wall = {stage: seconds for stage, seconds in result.wall.items() if seconds}
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
    if at_once := at_once_text(result):
        table.caption = Text(at_once, style="dim")
    return table


def evaluation_table(evaluation: Evaluation) -> Table:
    """What `evaluate` measured."""
    return pairs(
        [
            ("network", Text(evaluation.network or UNKNOWN, style="bold")),
            ("target", evaluation.target or UNKNOWN),
            *_latency_rows(evaluation, PurePath(evaluation.artifact).name),
        ]
    )


def kernels_table(evaluation: Evaluation) -> Table:
    """The kernels of a network by the time they take in one inference."""
    kernels = evaluation.kernels
    total = sum(kernel.ms for kernel in kernels) or 1.0
    table = Grid("Kernels")
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for kernel in kernels[:_KERNELS]:
        table.add_row(
            Text(kernel.name), format_latency(kernel.ms / 1e3), format_share(kernel.ms / total)
        )
    if len(kernels) > _KERNELS:
        table.caption = Text(f"and {len(kernels) - _KERNELS} more", style="dim")
    return table


def listing_table(listing: Listing) -> Table:
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


def checks_table(examination: Listing) -> Table:
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
