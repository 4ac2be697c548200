"""`tunefleet dataset gather`: exports the trials of a home's jobs as records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import options, output
from tunefleet.cli.dataset import arguments
from tunefleet.errors import InputError


def gather(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB...]",
            help="Job ids from `jobs`, or at least their first 6 characters. [default: all]",
            show_default=False,
        ),
    ] = None,
    *,
    out: arguments.ParquetOutput,
    force: arguments.Force = False,
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Write the trials of tuned or collected jobs as records.

    A job need not be finished.
    """
    from tunefleet.core.home import default_home

    arguments.check_free(Path(out), force)
    home = home or default_home()
    if not home.is_dir():  # reading must not create a store
        raise InputError(f"no jobs in {home}", cure="choose another home")
    write(out, home, jobs or None)


def write(out: str, home: Path, jobs: Sequence[str] | None) -> None:
    """Write the trials and print their number."""
    count = gathered(Path(out), home, jobs)
    output.console(stderr=True).print(f"{count:,} records in {out}", soft_wrap=True)


def gathered(out: Path, home: Path, jobs: Sequence[str] | None) -> int:
    """Write the trials of `jobs`, None for all, and return their number."""
    from tunefleet.runs.collected import write_jobs
    from tunefleet.runs.timeline import find_job
    from tunefleet.store import each_job, open_store

    store = open_store(home)
    try:
        named = None if jobs is None else [find_job(store, name) for name in jobs]
        chosen = [*each_job(store.jobs)][::-1] if named is None else named
        return write_jobs(out, store, list(dict.fromkeys(chosen)))
    finally:
        store.close()
