"""Forecasts of jobs as a table and a line for a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.report.grid import Grid
from tunefleet.report.units import UNKNOWN, format_clock, format_count, format_latency, format_share

Forecasts = Sequence[Mapping[str, Any]]


def forecasts_table(forecasts: Forecasts) -> Table:
    """A row for each forecast: when it was made, what it says, and what came of it."""
    table = Grid(optional=("network", "made", "trials", "now"))
    table.add_column("job", no_wrap=True)
    table.add_column("network", overflow="fold")
    for heading in ("made", "trials", "now", "at end", "10 to 90 %", "target", "by then", "came"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in forecasts:
        at_end, outcome = each["latency_s"], each["outcome"]
        probability = each["probability"]
        table.add_row(
            each["job"][:8],
            Text(" ".join(str(each["network"]).split())),
            time.strftime("%m-%d %H:%M", time.localtime(each["at"])),
            f"{format_count(each['trials'])} of {format_count(each['end_trials'])}",
            format_latency(each["now_s"]),
            format_latency(at_end["p50"]),
            f"{format_latency(at_end['p10'])} - {format_latency(at_end['p90'])}",
            format_latency(each["target_s"]),
            UNKNOWN if probability is None else f"{format_share(probability)}{_when(each)}",
            _came(each) if outcome else UNKNOWN,
        )
    return table


def _when(forecast: Mapping[str, Any]) -> str:
    """The time of tuning at which the target is reached as likely as not."""
    at_s = (forecast["target_at_s"] or {}).get("p50")
    return "" if at_s is None else f", {format_clock(at_s)}"


def _came(forecast: Mapping[str, Any]) -> Text:
    """What the tasks took together at the end; green where the forecast holds."""
    text = format_latency(forecast["outcome"]["latency_s"])
    if forecast["target_s"] is not None:
        text += ", met" if forecast["outcome"]["reached"] else ", not met"
    held = forecast["held"]
    return Text(text, style="" if held is None else "green" if held else "yellow")


def forecasts_summary(forecasts: Forecasts) -> str:
    """How often 10 to 90 % held; "" where nothing is judged."""
    judged = [each["held"] for each in forecasts if each["held"] is not None]
    if not judged:
        return ""
    return f"the end lay between 10 and 90 % in {sum(judged)} of {len(judged)} forecasts"
