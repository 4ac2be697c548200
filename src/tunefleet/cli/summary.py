"""The result of a run, printed for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tunefleet.cli import output
from tunefleet.cli.outcome import one_line
from tunefleet.cli.overview import short_names
from tunefleet.core.result import RunResult


def show(result: RunResult, *, tasks: int | None) -> None:
    """Print a result to stdout with at most `tasks` rows of tasks (None: all of them)."""
    from tunefleet.report.text import summary_table, tasks_table, wall_table

    console = output.console()
    if result.tasks:
        console.print(tasks_table(result, limit=tasks))
        console.print()
    if result.wall:
        console.print(wall_table(result))
        console.print()
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True, markup=False)
    console.print(summary_table(result))
    for name, path in (("report", result.report), ("artifact", result.artifact)):
        if path:
            console.print(f"{name:<10}{path}", soft_wrap=True)


def show_several(
    networks: Sequence[str],
    outcomes: Sequence[RunResult | str],
    *,
    wall_s: float,
    shares: Mapping[str, float],
) -> None:
    """Print what came of several networks to stdout: of each its result, or its error's text.

    `shares` is the busy share of each resource while it tuned. Paths and errors have lines of
    their own, so that they can be copied whatever the width.
    """
    from tunefleet.report.text import networks_table, pairs
    from tunefleet.report.units import format_seconds

    console = output.console()
    names = short_names([one_line(network) for network in networks])
    console.print(networks_table(names, outcomes))
    console.print()
    width = max(map(len, names)) + 2
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, str):
            text = f"failed: {one_line(outcome)}"
        else:
            text = outcome.artifact or "not saved"
        console.print(f"{name:<{width}}{text}", soft_wrap=True)
    console.print()
    rows: list[tuple[str, Any]] = [("wall time", format_seconds(wall_s))]
    if shares:
        busy = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        rows.append(("used while tuning", busy))
    console.print(pairs(rows))
