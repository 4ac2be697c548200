"""`tunefleet dataset show`: shows records of a file or a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError

#: Maximum width of each column in characters.
_ROOM = {"format": 19, "device": 12, "target": 26, "workload": 28}


def show(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            callback=arguments.existing,
            help="Records in Parquet, or a log of any format.",
            show_default=False,
        ),
    ],
    row: Annotated[
        int | None,
        typer.Option(
            metavar="N", callback=parsing.positive, help="Show all of one row; the first is 1."
        ),
    ] = None,
    head: Annotated[
        int, typer.Option(metavar="N", callback=parsing.positive, help="Number of rows to list.")
    ] = 10,
    format: arguments.Format = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Show the first records of a file, or one record in full."""
    first, count = (row - 1, 1) if row is not None else (0, head)
    rows = list(islice(_rows(file, format, first), count))
    if row is not None and not rows:
        raise InputError(f"{file} has no row {row}", cure="rows are counted from 1")
    if row is not None:
        output.tell(json, rows[0], lambda: _show_whole(rows[0]))
    else:
        output.tell(json, rows, lambda: _show_table(rows))


def _rows(file: Path, format: str | None, first: int) -> Iterator[dict[str, Any]]:
    """The rows of a file from the one with the index `first` on."""
    from tunefleet.dataset import codecs, parquet

    def report(bad: codecs.BadLine) -> None:
        print(f"bad line: {one_line(str(bad))}", file=sys.stderr)

    if parquet.is_parquet(file):
        batches = parquet.read(file)
    else:
        batches = codecs.read(file, format=format, on_bad=report)
    for batch in batches:
        if first < batch.num_rows:
            # One row at a time: a batch as Python objects is a hundred times larger.
            for index in range(first, batch.num_rows):
                yield batch.slice(index, 1).to_pylist()[0]
        first = max(first - batch.num_rows, 0)


def _show_table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("line", justify="right", no_wrap=True, min_width=7)
    for name in _ROOM:
        table.add_column(name, no_wrap=True)
    for name in ("steps", "best [s]", "error"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        best = f"{min(row['costs_s']):.4g}" if row["costs_s"] and not row["error_no"] else "-"
        names = {**row, "format": f"{row['format']} {row['version']}".strip()}
        table.add_row(
            str(row["line"]),
            *(_short(names[name], room) for name, room in _ROOM.items()),
            *(str(len(row["steps"])), best, str(row["error_no"])),
        )
    output.console().print(table)


def _short(text: str, room: int) -> str:
    line = one_line(text)
    return line if len(line) <= room else f"{line[: room - 3]}..."


def _show_whole(row: dict[str, Any]) -> None:
    width = max(map(len, row))
    for name, value in row.items():
        values = value if name == "steps" else [_text(value)]
        for i, text in enumerate(values or ["none"]):
            typer.echo(f"{name if not i else '':<{width}}  {one_line(text)}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    text = ", ".join(map(repr, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 2000 else f"{text[:2000]}... ({len(text):,} characters)"
