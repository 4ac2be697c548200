"""`tunefleet costmodel export`: copies a version to a folder or archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.outcome import one_line


def export(
    model: arguments.Model,
    out: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            callback=parsing.writable,
            help="The folder to create, or a file that ends in .zip.",
        ),
    ],
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Copy a cost model with its card.

    Other commands accept the path of the copy.
    """
    entry = arguments.registry(home).get(model)
    entry.export(Path(out))
    text = f"{entry.card.name}, {entry.card.id[:12]}, in {one_line(out)}"
    output.tell(json, {"id": entry.card.id, "output": out}, lambda: typer.echo(text))
