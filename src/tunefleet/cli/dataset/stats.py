"""`tunefleet dataset stats`: statistics of files of records or logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.bad_lines import BadLines
from tunefleet.cli.dataset import arguments
from tunefleet.cli.dataset.devices import DevicesFile, hardware
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

#: Default number of tasks per device shown in a terminal.
_TASKS = 10
#: Maximum number of devices with separate tables; more share one table.
_DEVICES = 6


def _page(value: str | None) -> str | None:
    """Refuse an output without the suffix .html, or one that cannot be written."""
    if value is not None and Path(value).suffix != ".html":
        raise typer.BadParameter(f"{value} does not end in .html")
    return parsing.writable(value)


def stats(
    files: arguments.Files,
    device: arguments.MeasuredOn = "",
    html: Annotated[
        str | None,
        typer.Option(metavar="OUT.html", callback=_page, help="Write a page with plots."),
    ] = None,
    tasks: Annotated[
        int, typer.Option(metavar="N", callback=parsing.not_negative, help="Tasks to list.")
    ] = _TASKS,
    own: DevicesFile = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Count records, primitives and failures, with tasks' latencies."""
    from tunefleet.dataset.statistics import statistics

    bad = BadLines()
    table = hardware(own)
    figures = statistics(_batches(files, device, bad), table)
    figures["bad_lines"] = bad.count
    bad.end()
    if not figures["records"]:
        raise InputError(
            f"no records in {', '.join(map(str, files))}", cure="give Parquet files or logs"
        )
    if html is not None:
        _write_page(html, figures, files)

    def show() -> None:
        _show(figures, tasks)
        if html is not None:
            typer.echo(f"wrote {one_line(html)}")

    output.tell(json, figures, show)


def _batches(paths: list[Path], device: str, bad: BadLines) -> Iterator[pa.RecordBatch]:
    from tunefleet.dataset import reading

    for path, format in reading.find_files(paths):
        yield from reading.read(path, format, device=device, on_bad=bad)


def _show(figures: dict[str, Any], tasks: int) -> None:
    from tunefleet.report import dataset_text

    console = output.console()
    shown = figures["devices"] if len(figures["devices"]) <= _DEVICES else []
    tables = [dataset_text.devices_table(figures)]
    for entry in shown:
        tables += [dataset_text.lengths_table(entry), dataset_text.primitives_table(entry)]
    if figures["failed"]:
        tables.append(dataset_text.failures_table(figures))
    if tasks:
        tables += [dataset_text.tasks_table(entry, tasks) for entry in shown]
    for table in tables:
        console.print(table)
        console.print()
    console.print(dataset_text.totals_text(figures), soft_wrap=True)
    console.print(dataset_text.flops_text(figures), soft_wrap=True)


def _write_page(path: str, figures: dict[str, Any], files: list[Path]) -> None:
    from tunefleet.report.dataset_page import dataset_page

    title = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    try:
        Path(path).write_bytes(dataset_page(figures, title).encode(errors="replace"))
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", cure="choose another path for --html"
        ) from error
