"""The jobs of a home as a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.report.grid import Grid
from tunefleet.report.units import (
    TIMES,
    UNKNOWN,
    format_clock,
    format_count,
    format_latency,
)
from tunefleet.report.words import ratio_text

Listing = Sequence[Mapping[str, Any]]

_STYLES = {
    "running": "cyan",
    "paused": "yellow",
    "cancelling": "yellow",
    "succeeded": "green",
    "failed": "red",
    "expired": "red",
}


def jobs_table(jobs: Listing) -> Table:
    """The jobs in the given order; in a narrow terminal without some columns."""
    table = Grid(optional=("started", "tuned", "budget", "trials", "ratio", "latency"))
    for heading in ("job", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("network", overflow="fold")
    for heading in ("latency", "ratio", "trials"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("budget", no_wrap=True)
    table.add_column("tuned", justify="right", no_wrap=True)
    table.add_column("started", no_wrap=True)
    for job in jobs:
        latency, speedup, state = job.get("latency_ms"), job.get("speedup"), str(job["state"])
        table.add_row(
            job["job"][:8],
            Text(state, style=_STYLES.get(state, "")),
            Text(_network(job)),
            format_latency(None if latency is None else latency / 1e3),
            UNKNOWN if speedup is None else f"{speedup:.2f}{TIMES}",
            format_count(job.get("trials")),
            budget_text(job["budget"]),
            format_clock(job.get("elapsed_s")),
            time.strftime("%m-%d %H:%M", time.localtime(job["created_at"])),
        )
    return table


def _network(job: Mapping[str, Any]) -> str:
    """With what is done of it, where it is not tuned."""
    name, kind = " ".join(str(job["network"]).split()), job.get("kind", "tune")
    return name if kind == "tune" else f"{name} ({kind})"


def budget_text(budget: Mapping[str, Any]) -> str:
    """`64 trials`, `5:00`, `1,000 or 30:00, ≤ 2.00 ms`."""
    parts = []
    if budget.get("trials") is not None:
        parts.append(format_count(budget["trials"]))
    if budget.get("seconds") is not None:
        parts.append(format_clock(budget["seconds"]))
    if budget.get("trials_per_task") is not None:
        parts.append(f"{format_count(budget['trials_per_task'])} per task")
    if budget.get("device_seconds") is not None:
        parts.append(f"{format_clock(budget['device_seconds'])} of device")
    text = " or ".join(parts)
    if len(parts) == 1 and budget.get("trials") is not None:
        text += " trials"
    target = budget.get("target_latency_s")
    return text + (f", ≤ {format_latency(target)}" if target is not None else "")


def job_notes(jobs: Listing) -> Iterator[str]:
    """Why jobs are as they are, a line each: what a column has no room for."""
    for job in jobs:
        ratio = ratio_text(None, job.get("why_no_speedup"), str(job.get("run") or ""))
        agreement = job.get("agreement") or {}
        agreed = f"agreed: {agreement['text']}" if agreement else ""
        forecast = job.get("forecast")
        reasons = [str(job.get("reason") or ""), agreed, ratio, _forecast_of(forecast)]
        text = "; ".join(reason for reason in reasons if reason)
        if text:
            yield f"{job['job'][:8]}  {' '.join(text.split())}"


def _forecast_of(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return ""
    of = value["latency_s"]
    return forecast_text(of["p10"], of["p50"], of["p90"], value["ends_at"], value["probability"])


def forecast_text(
    low_s: float, median_s: float, high_s: float, ends_at: float, probability: float | None
) -> str:
    """`forecast: 1.90 ms (1.80 ms to 2.10 ms) at about 14:20; target reached with 40 %`."""
    low, median, high = map(format_latency, (low_s, median_s, high_s))
    clock = time.strftime("%H:%M", time.localtime(ends_at))
    likely = "" if probability is None else f"; target reached with {100 * probability:.0f} %"
    return f"forecast: {median} ({low} to {high}) at about {clock}{likely}"


def queue_text(queue: Mapping[str, Any]) -> str:
    """`begins about 14:05 beside 2 jobs, ends about 14:20`."""
    starts, ends = (
        None if at is None else time.strftime("%H:%M", time.localtime(at))
        for at in (queue["starts_at"], queue["ends_at"])
    )
    count = queue["jobs"]
    beside = f" beside {count} job{'s' * (count != 1)}" if count else ""
    return f"begins about {starts}{beside}" + (f", ends about {ends}" if ends else "")
