"""`tunefleet logs`: what a run did."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tunefleet.cli import options, parsing
from tunefleet.cli.control import JobName

#: As `runs.run_log.LEVELS`, which is not imported for a help page.
_LEVELS = ("debug", "info", "warning", "error")
_BETWEEN_S = 0.2


def _level(value: str) -> str:
    return parsing.one_of(_LEVELS, value, "level")


def logs(
    job: JobName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written, to its end.")
    ] = False,
    level: Annotated[
        str,
        typer.Option(
            metavar="|".join(_LEVELS), callback=_level, help="The least level that is shown."
        ),
    ] = "info",
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Show the log of a job or a run: its stages, and how they failed."""
    from tunefleet.core.home import default_home
    from tunefleet.runs.run_log import log_file, read_log

    path = log_file(home or default_home(), job)
    for line in read_log(path, level, (lambda: time.sleep(_BETWEEN_S)) if follow else None):
        typer.echo(line)
