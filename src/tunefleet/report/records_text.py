"""The best verified records of a home as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.report.grid import Grid
from tunefleet.report.units import format_gflops, format_latency


def records_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Records in the given order; in a narrow terminal without some columns."""
    table = Grid(optional=("job", "GFLOP/s", "device"))
    table.add_column("id", no_wrap=True)
    table.add_column("task", overflow="fold", ratio=1, min_width=24)
    for heading in ("latency", "GFLOP/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("device", overflow="fold")
    table.add_column("job", no_wrap=True)
    for record in records:
        name = Text(str(record["name"]))
        name.append(f" {record['shapes']}", style="dim")
        key = f" ({record['device_key']})" if record["device_key"] else ""
        table.add_row(
            str(record["task_id"])[:8],
            name,
            format_latency(record["latency_us"] / 1e6),
            format_gflops(record["gflops"]),
            Text(f"{record['device']}{key}"),
            str(record["job"])[:8],
        )
    return table
