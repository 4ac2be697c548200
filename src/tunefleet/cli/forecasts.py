"""`tunefleet forecasts`: what was forecast of searches, and what came of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunefleet.cli import options, output


def forecasts(
    job: Annotated[
        str,
        typer.Argument(
            metavar="[JOB]",
            help="An id that `jobs` lists, or its first 6 characters or more; all without one.",
            show_default=False,
        ),
    ] = "",
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List what was forecast of searches and what came of it.

    Latencies are those of a network's tasks together, times are of tuning.
    """
    from tunefleet.core.home import default_home
    from tunefleet.runs.forecasts import forecasts_of

    listing = forecasts_of(home or default_home(), job)
    output.tell(json, {"forecasts": listing}, lambda: _show(listing))


def _show(listing: list[dict[str, Any]]) -> None:
    if not listing:
        typer.echo("no forecasts yet: they are made while `tunefleet tune` searches")
        return
    from tunefleet.report.forecasts_text import forecasts_summary, forecasts_table

    console = output.console()
    console.print(forecasts_table(listing))
    summary = forecasts_summary(listing)
    if summary:
        console.print(summary, style="dim", soft_wrap=True, markup=False)
