"""`tunefleet dataset export`: writes records as a log of their tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line
from tunefleet.dataset import formats
from tunefleet.errors import InputError

#: The files of a MetaSchedule database.
TUNING_RECORDS = "database_tuning_record.json"


def _format(value: str) -> str:
    return parsing.one_of(formats.WRITTEN, value, "format that is written")


def export(
    records: arguments.Records,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="The log to write: plain, .gz or .zst; a folder for metaschedule.",
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            metavar="|".join(formats.WRITTEN),
            callback=_format,
            help="The format of the records.",
        ),
    ],
    force: arguments.Force = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Write records in the log format that they were imported from."""
    from tunefleet.dataset import codecs, parquet

    if out.is_dir() and format != formats.METASCHEDULE:
        raise InputError(f"{out} is a directory", cure="give a file")
    arguments.check_free(out / TUNING_RECORDS if out.is_dir() else out, force)
    count = codecs.write(parquet.read(records), out, format)
    text = f"{count:,} records written to {one_line(str(out))}"
    output.tell(json, {"output": str(out), "records": count}, lambda: typer.echo(text))
