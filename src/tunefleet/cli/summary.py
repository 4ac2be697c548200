"""The result of a run, printed for people."""

from __future__ import annotations

from typing import Any

from tunefleet.cli import output


def show(result: dict[str, Any], *, tasks: int | None) -> None:
    """Print a result to stdout with at most `tasks` rows of tasks (None: all of them)."""
    from tunefleet.report.text import summary_table, tasks_table, wall_table

    console = output.console()
    if result.get("tasks"):
        console.print(tasks_table(result, limit=tasks))
        console.print()
    if result.get("wall"):
        console.print(wall_table(result))
        console.print()
    console.print(summary_table(result))
    for name in ("report", "artifact"):
        if result.get(name):
            console.print(f"{name:<10}{result[name]}", soft_wrap=True)
