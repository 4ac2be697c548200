"""`tunefleet watch`: what a job does, whoever works on it."""

from __future__ import annotations

import json as text_of
import sys
from typing import Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.outcome import Stopped


def watch(
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB...",
            help="Ids that `jobs` lists, or their first 6 characters or more.",
            show_default=False,
        ),
    ],
    after: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --json: only the events behind this number.", min=0),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Write each event as a line of JSON, with its number."),
    ] = False,
    home: options.Home = None,
    server: options.Server = None,
    quiet: options.Quiet = False,
    traceback: options.Traceback = False,
) -> None:
    """Show what jobs do, until they have ended or nobody works on them.

    Whoever leaves stops nothing.
    """
    from tunefleet.core.home import default_home
    from tunefleet.runs.following import watch_jobs

    root = home or default_home()
    try:
        if server:
            from tunefleet.cli.remote import watch_remote

            watch_remote(server, jobs, after, quiet=quiet, json=json)
        elif json:
            for value in watch_jobs(root, jobs, after or 0):
                sys.stdout.write(text_of.dumps(value) + "\n")
                sys.stdout.flush()
        else:
            _show(root, jobs, quiet=quiet)
    except KeyboardInterrupt:
        raise Stopped("not watched any more; the job goes on") from None


def _show(root: Any, jobs: list[str], *, quiet: bool) -> None:
    from tunefleet.cli.live import watch as view_of
    from tunefleet.runs.following import show_jobs, watched_networks

    networks = watched_networks(root, jobs)
    with view_of(networks, output.console(stderr=True), quiet=quiet) as view:
        states = show_jobs(root, jobs, view.observer)
    for name, state in states.items():
        typer.echo(f"{name}: {state}")
