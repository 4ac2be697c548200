"""`tunefleet dataset merge`: merges files of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line

SCHEMA = "tunefleet-merge/1"


def merge(
    records: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            callback=arguments.all_existing,
            help="Records in Parquet.",
            show_default=False,
        ),
    ],
    out: arguments.ParquetOutput,
    force: arguments.Force = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Merge files of records and drop duplicates.

    Duplicates have the same device, target, workload, steps and costs.
    """
    from tunefleet.dataset import merging

    arguments.check_free(Path(out), force)
    merged = merging.merge(records, Path(out))
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "output": out,
        "read": merged.rows,
        "duplicates": merged.duplicates,
        "records": merged.rows - merged.duplicates,
    }
    text = (
        f"{figures['records']:,} records in {one_line(out)}, "
        f"{figures['duplicates']:,} duplicates dropped"
    )
    output.tell(json, figures, lambda: typer.echo(text))
