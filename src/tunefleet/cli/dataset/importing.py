"""`tunefleet dataset import`: converts logs to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.bad_lines import BadLines
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.dataset.codecs import BadLine

SCHEMA = "tunefleet-import/1"
#: Maximum number of bad lines shown: a wrong file has nothing else.
_SHOWN = 20
#: Maximum number of bad lines in the JSON file.
_LISTED = 10_000


def _device(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise typer.BadParameter(f"{value!r} is not a valid device name")
    return value


def import_(
    logs: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...",
            callback=arguments.all_existing,
            help="Logs (plain, .gz or .zst), or folders to search for logs.",
            show_default=False,
        ),
    ],
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME", callback=_device, help="The device of the logs, which logs do not name."
        ),
    ],
    out: arguments.ParquetOutput,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad line.")] = False,
    format: arguments.Format = None,
    force: arguments.Force = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Import tuning logs of one device into a Parquet file."""
    from tunefleet.dataset.importing import find_logs, import_logs

    arguments.check_free(Path(out), force)
    log_files = find_logs(logs, format)
    if not log_files.found:
        raise InputError(
            f"no tuning log in {', '.join(map(str, logs))}", cure="give logs, or a folder of logs"
        )
    bad = _BadLines()
    done = import_logs(log_files, device, Path(out), strict=strict, on_bad=bad)
    bad.end()
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "output": out,
        "device": device,
        **done.to_json(),
        "bytes": Path(out).stat().st_size,
        "bad": bad.listed,
        "skipped_files": [str(path) for path in log_files.skipped],
    }
    output.tell(json, figures, lambda: _show(figures))


class _BadLines(BadLines):
    """Also collects the bad lines for the JSON file."""

    def __init__(self) -> None:
        super().__init__(_SHOWN)
        self.listed: list[dict[str, Any]] = []

    def __call__(self, bad: BadLine) -> None:
        super().__call__(bad)
        if self.count <= _LISTED:
            self.listed.append({"source": bad.source, "line": bad.line, "reason": bad.reason})


def _show(figures: dict[str, Any]) -> None:
    formats = ", ".join(f"{count:,} {name}" for name, count in figures["formats"].items())
    typer.echo(
        f"{figures['records']:,} records ({formats}) from {figures['logs']:,} logs, "
        f"{figures['failed']:,} of them failures; {figures['bad_lines']:,} bad lines"
    )
    if figures["skipped"]:
        typer.echo(f"{figures['skipped']:,} other files skipped")
    rate = figures["records"] / max(figures["wall_s"], 1e-9)
    typer.echo(
        f"{one_line(figures['output'])}: {figures['bytes'] / 1e6:.1f} MB, "
        f"{figures['wall_s']:.1f} s, {rate:,.0f} records/s"
    )
