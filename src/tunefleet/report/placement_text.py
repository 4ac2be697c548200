"""A placement as a table and lines for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from tunefleet.report.grid import Grid
from tunefleet.report.text import pairs
from tunefleet.report.units import TIMES, UNKNOWN, format_latency, significant

PlacementJson = Mapping[str, Any]

#: Stands beside a time of a program that nobody tuned.
_PLAIN = "plain"


def placement_table(report: PlacementJson) -> Table:
    """A row for each task: where its calls went, and what it takes on each device."""
    names = [device["name"] for device in report["devices"]]
    optional = ["shapes", TIMES, *(f"{name}, predicted" for name in names)]
    table = Grid(f"{report['network']} on {' and '.join(names)}", optional=optional)
    table.add_column("task", overflow="fold", min_width=12)
    table.add_column("shapes", overflow="fold", min_width=12)
    table.add_column(TIMES, justify="right", no_wrap=True)
    table.add_column("placed on", no_wrap=True)
    for name in names:
        table.add_column(f"{name}, predicted", justify="right", no_wrap=True)
        table.add_column(name, justify="right", no_wrap=True)
    for task in report["tasks"]:
        cells: list[str | Text] = [Text(task["name"]), Text(task["shapes"])]
        cells += [str(task["calls"]), _places(task)]
        for name in names:
            timing = task["seconds"][name]
            plain = f" {_PLAIN}" if timing["program"] == _PLAIN else ""
            cells.append(format_latency(timing["predicted_s"]))
            cells.append(f"{format_latency(timing['measured_s'])}{plain}")
        table.add_row(*cells)
    return table


def _places(task: PlacementJson) -> str:
    """The device, or several with the calls on each."""
    on = {name: count for name, count in task["on"].items() if count}
    if len(on) == 1:
        return str(next(iter(on)))
    return ", ".join(f"{name} {TIMES}{count}" for name, count in on.items())


def totals_table(report: PlacementJson) -> Table:
    """One inference as placed, each task where it is fastest, and everything on each device; then
    how devices are reached, what predictions were worth, and what is to be done."""
    rows: list[tuple[str, str | Text]] = [
        ("as placed", _total(report["placement"])),
        ("each where fastest", _total(report["fastest_each"])),
    ]
    rows += [(f"all on {name}", _total(cost)) for name, cost in report["alone"].items()]
    rows += [(f"reaching {device['name']}", _reached(device)) for device in report["devices"]]
    rows.append(("predicted", _prediction(report)))
    if report["ran"]:
        rows.append(("ran", _ran(report)))
    good = report["pays"]
    rows.append(("use", Text(_verdict(report), style="green" if good else "yellow")))
    return pairs(rows)


def _total(cost: PlacementJson) -> str:
    if cost["total_s"] is None:
        return "not every task runs there"
    parts = f" in {cost['parts']} parts" if cost.get("parts", 1) > 1 else ""
    kernels, transfers = (format_latency(cost[f"{of}_s"]) for of in ("kernels", "transfers"))
    return f"{format_latency(cost['total_s'])}{parts}: kernels {kernels}, transfers {transfers}"


def _reached(device: PlacementJson) -> str:
    def link(way: PlacementJson) -> str:
        rate = way["bytes_per_s"]
        speed = "" if rate is None else f" and {significant(rate / 1e6)} MB/s"
        return f"{format_latency(way['latency_s'])}{speed}"

    if device["up"]["bytes_per_s"] is None:
        return f"this machine; a call {format_latency(device['call_s'])}"
    return (
        f"there {link(device['up'])}, back {link(device['down'])}, "
        f"a call {format_latency(device['call_s'])}"
    )


def _prediction(report: PlacementJson) -> str:
    predicted = report["predicted"]
    if predicted is None:
        few = [d["name"] for d in report["devices"] if d["recorded_tasks"] < 2]
        return f"not: {', '.join(few) or 'some device'} has no records of other tasks"
    errors = ", ".join(
        f"{device['name']} {UNKNOWN if error is None else significant(error)}{TIMES}"
        for device in report["devices"]
        for error in [device["typical_error"]]
    )
    return (
        f"{format_latency(predicted['total_s'])}; {predicted['same_calls']} of "
        f"{predicted['calls']} calls where they are now, the others lose "
        f"{format_latency(predicted['regret_s'])}; typical error {errors}"
    )


def _ran(report: PlacementJson) -> str:
    ran = report["ran"]
    alone = ran["alone_s"]
    beside = (
        "" if alone is None else f", all on {report['best_device']} {format_latency(alone)} in turn"
    )
    return f"as placed {format_latency(ran['placement_s'])}{beside}"


def _verdict(report: PlacementJson) -> str:
    best, ran = report["best_device"], report["ran"]
    if report["pays"]:
        saved = "" if ran["alone_s"] is None else f"; {_ratio(ran['alone_s'], ran['placement_s'])}"
        return f"the placement{saved}"
    if ran:
        return f"{best} alone: run in turn, the division was not faster"
    alone, other = report["alone"][best], report["fastest_each"]
    loss = other["total_s"] - alone["total_s"]
    if loss <= 0:
        return f"{best} alone: every task is fastest there"
    return f"{best} alone: each task where it is fastest loses {format_latency(loss)} to transfers"


def _ratio(slower: float, faster: float) -> str:
    return f"{significant(slower / faster)}{TIMES} as fast as the best device alone"
