"""`tunefleet store`: the file that holds every job and record of a home, looked after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import options, output
from tunefleet.cli.help import Commands
from tunefleet.errors import SetupError

app = Commands(
    name="store",
    help="Check, copy and repair the store of jobs and records.",
)


def _path(home: Path | None) -> Path:
    from tunefleet.core.home import default_home
    from tunefleet.store import store_path

    return store_path(home or default_home())


@app.command("check")
def check(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """Read the whole store and report problems.

    The exit code is 3 where there is any.
    """
    from tunefleet.store.maintenance import check as problems_of

    path = _path(home)
    problems = problems_of(path)
    text = "\n".join(problems) or f"{path} is whole"
    output.tell(json, {"store": str(path), "problems": problems}, lambda: typer.echo(text))
    if problems:
        count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
        raise SetupError(
            f"{path} has {count}", cure="save what can be read: tunefleet store repair"
        )


@app.command("backup")
def backup(
    out: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="The new file.", show_default=False),
    ],
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Copy the store to a new file, also while jobs run."""
    from tunefleet.store.maintenance import backup as copy

    path = _path(home)
    copy(path, out)
    text = f"{out} is a copy; it is put back by moving it to {path}"
    output.tell(json, {"store": str(path), "copy": str(out)}, lambda: typer.echo(text))


@app.command("repair")
def repair(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """Make a new store of everything that can be read.

    The damaged file stays beside it.
    """
    from tunefleet.store.maintenance import repair as save

    path = _path(home)
    saved = save(path)
    value = {
        "store": str(path),
        "saved": saved.rows,
        "lost": saved.lost,
        "damaged": str(saved.damaged),
    }
    text = (
        f"saved {saved.rows['jobs']} jobs and {saved.rows['trials']} trials, {saved.lost} rows are "
        f"lost; the damaged file is {saved.damaged}"
    )
    output.tell(json, value, lambda: typer.echo(text))
