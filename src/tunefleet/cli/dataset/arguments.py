"""The options that the commands of `tunefleet dataset` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import parsing
from tunefleet.dataset import formats
from tunefleet.errors import InputError


def parquet_output(value: str) -> str:
    """Refuse an output that is not called Parquet, or could not be written later."""
    if Path(value).suffix != ".parquet":
        raise typer.BadParameter(f"{value} does not end in .parquet")
    parsing.writable(value)
    return value


def existing(value: Path) -> Path:
    """Refuse what is not there."""
    if not value.exists():
        raise typer.BadParameter(f"{value} does not exist")
    return value


def all_existing(values: list[Path]) -> list[Path]:
    """Refuse a list with something that is not there."""
    return [existing(value) for value in values]


def check_free(path: Path, force: bool) -> None:
    """Refuse to write over what is there, unless forced."""
    if path.exists() and not force:
        raise InputError(f"{path} exists", cure="choose another name, or add --force")


def _format(value: str | None) -> str | None:
    return value if value is None else parsing.one_of(formats.NAMES, value, "format")


Records = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        callback=existing,
        help="Records in Parquet, as `dataset import` writes them.",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        callback=all_existing,
        help="Records in Parquet, logs of any format, or folders of logs.",
        show_default=False,
    ),
]
MeasuredOn = Annotated[
    str, typer.Option(metavar="NAME", help="What logs were measured on; Parquet says it.")
]
ParquetOutput = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="OUT", callback=parquet_output, help="The Parquet file to write."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(formats.NAMES),
        callback=_format,
        help="The logs' format; it is told by content.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", callback=parsing.not_negative, help="Seed of what is drawn."),
]
Force = Annotated[bool, typer.Option("--force", help="Write over what is there.")]
