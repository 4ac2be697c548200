"""`tunefleet dataset split`: splits records for training, validation and testing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.cli import dividing, options, output, parsing
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError

SCHEMA = "tunefleet-split/1"


def split(
    records: arguments.Records,
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            callback=parsing.directory,
            help="Output folder for train.parquet, validation.parquet and test.parquet.",
        ),
    ],
    split: dividing.Split = dividing.DEFAULT_SPLIT,
    hold_out: dividing.HoldOut = None,
    networks: dividing.Networks = None,
    test: dividing.TestShare = dividing.DEFAULT_TEST,
    validation: dividing.ValidationShare = dividing.DEFAULT_VALIDATION,
    max_records: dividing.MaxRecords = None,
    seed: arguments.Seed = 0,
    force: arguments.Force = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Split records for training, validation and testing.

    Writes train.parquet, validation.parquet and test.parquet.
    """
    from tunefleet.dataset import files, parquet
    from tunefleet.dataset.rows import Rows
    from tunefleet.dataset.schema import BATCH_ROWS
    from tunefleet.dataset.splits import divide

    division = dividing.division(split, hold_out, networks, test, validation, seed, max_records)
    paths = {part: out / f"{part}.parquet" for part in ("train", "validation", "test")}
    for path in paths.values():
        arguments.check_free(path, force)
    table = parquet.read_table(records)
    rows = Rows.of(table)
    divided = divide(rows, division)
    _make(out)
    for part, numbers in divided.parts().items():
        with files.Draft(paths[part]) as draft:
            parquet.write(table.take(numbers).to_batches(BATCH_ROWS), draft)
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "output": str(out),
        **dividing.figures(division),
        "parts": {
            part: {"records": len(numbers), "tasks": len(set(rows.task[numbers].tolist()))}
            for part, numbers in divided.parts().items()
        },
    }
    text = "\n".join(
        f"{one_line(str(paths[part]))}: {counts['records']:,} records, {counts['tasks']:,} tasks"
        for part, counts in figures["parts"].items()
    )
    output.tell(json, figures, lambda: typer.echo(text))


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the directory {directory}: {error.strerror}", cure="choose another one"
        ) from error
