"""`tunefleet disk` and `tunefleet prune`: what takes space, and removing what nothing needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.confirming import confirmed

if TYPE_CHECKING:
    from tunefleet.runs.disk import DiskPart


def disk(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """Show what takes space, and how much of it can go."""
    from tunefleet.runs.disk import disk_usage

    place = _place(home)
    parts = disk_usage(place)
    output.tell(json, _value(place, parts), lambda: _show(parts))


def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    yes: options.Yes = False,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Remove temporary files and what only ended jobs made.

    Records, artifacts, cost models and what an open job needs stay.
    """
    from tunefleet.report.units import format_bytes
    from tunefleet.runs import disk as disks

    place = _place(home)
    parts = disks.disk_usage(place)
    paths = [path for part in parts for path in part.can_go]
    total = format_bytes(sum(part.can_go_size for part in parts))
    if paths and not dry_run:
        confirmed(f"Remove {_folders(len(paths))}, {total}?", yes=yes)
        parts = disks.prune(place)
        paths = [path for part in parts for path in part.can_go]
        total = format_bytes(sum(part.can_go_size for part in parts))
    text = "nothing can go"
    if paths:
        text = f"{'would remove' if dry_run else 'removed'} {_folders(len(paths))}, {total}"
    value = _value(place, parts) | {"removed": bool(paths) and not dry_run}
    lines = [*(str(path) for path in paths if dry_run), text]
    output.tell(json, value, lambda: typer.echo("\n".join(lines)))


def _place(home: Path | None) -> Path:
    from tunefleet.core.home import default_home

    return home or default_home()


def _folders(count: int) -> str:
    return f"{count} folder{'' if count == 1 else 's'}"


def _value(home: Path, parts: list[DiskPart]) -> dict[str, Any]:
    return {
        "home": str(home),
        "bytes": sum(part.size for part in parts),
        "can_go_bytes": sum(part.can_go_size for part in parts),
        "parts": [part.to_json() for part in parts],
    }


def _show(parts: list[DiskPart]) -> None:
    from tunefleet.report.grid import Grid
    from tunefleet.report.units import format_bytes

    table = Grid(optional=("what it is",))
    table.add_column("part", no_wrap=True)
    for heading in ("size", "can go"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is", no_wrap=True)
    for part in parts:
        table.add_row(part.name, *map(format_bytes, (part.size, part.can_go_size)), part.about)
    total, can_go = (sum(p.size for p in parts), sum(p.can_go_size for p in parts))
    table.add_row("total", format_bytes(total), format_bytes(can_go), "")
    output.console().print(table)
    if can_go:
        typer.echo("tunefleet prune removes what can go")
