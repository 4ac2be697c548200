"""`tunefleet store`: the file that holds every job and record of a home, looked after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import options
from tunefleet.errors import SetupError

app = typer.Typer(
    name="store",
    help="Check, copy and repair the file that holds all jobs and records of a home.",
    rich_markup_mode=None,
)


def _path(home: Path | None) -> Path:
    from tunefleet.context import default_home
    from tunefleet.store import store_path

    return store_path(home or default_home())


@app.command("check")
def check(home: options.Home = None, traceback: options.Traceback = False) -> None:
    """Read the whole store and say what is wrong with it; exit code 3 where anything is."""
    from tunefleet.store.maintenance import check as problems_of

    path = _path(home)
    problems = problems_of(path)
    for problem in problems:
        typer.echo(problem)
    if problems:
        count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
        raise SetupError(
            f"{path} has {count}", cure="save what can be read: tunefleet store repair"
        )
    typer.echo(f"{path} is whole")


@app.command("backup")
def backup(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The new file.", show_default=False),
    ],
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Copy the store to a new file, also while jobs run."""
    from tunefleet.store.maintenance import backup as copy

    copy(_path(home), output)
    typer.echo(f"{output} is a copy; it is put back by moving it to {_path(home)}")


@app.command("repair")
def repair(home: options.Home = None, traceback: options.Traceback = False) -> None:
    """Make a new store of everything that can be read; the damaged file stays beside it."""
    from tunefleet.store.maintenance import repair as save

    saved = save(_path(home))
    rows = saved.rows
    typer.echo(
        f"saved {rows['jobs']} jobs and {rows['trials']} trials, {saved.lost} rows are lost; "
        f"the damaged file is {saved.damaged}"
    )
