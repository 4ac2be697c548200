"""Shared options of the `tunefleet dataset` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import parsing
from tunefleet.dataset import formats
from tunefleet.errors import InputError


def parquet_output(value: str) -> str:
    """Refuse an output without the suffix .parquet, or one that cannot be written."""
    if Path(value).suffix != ".parquet":
        raise typer.BadParameter(f"{value} does not end in .parquet")
    parsing.writable(value)
    return value


def existing(value: Path) -> Path:
    """Refuse a path that does not exist."""
    if not value.exists():
        raise typer.BadParameter(f"{value} does not exist")
    return value


def all_existing(values: list[Path]) -> list[Path]:
    """Refuse a list with a path that does not exist."""
    return [existing(value) for value in values]


def check_free(path: Path, force: bool) -> None:
    """Refuse to overwrite a file, unless forced."""
    if path.exists() and not force:
        raise InputError(f"{path} exists", cure="choose another name, or add --force")


def _format(value: str | None) -> str | None:
    return value if value is None else parsing.one_of(formats.NAMES, value, "format")


Records = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        callback=existing,
        help="Records in Parquet, written by `dataset import`.",
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
    str, typer.Option(metavar="NAME", help="Device of the logs; Parquet files contain it.")
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
        help="Format of the logs. [default: detected]",
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", callback=parsing.not_negative, help="Random seed."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
