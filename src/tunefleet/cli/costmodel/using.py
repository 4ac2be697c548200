"""`tunefleet costmodel use` and `history`: the version that searches use, and what was learned."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tunefleet.cli import options, output
from tunefleet.cli.costmodel import arguments
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.store import Learning

#: Learnings that are shown.
_MOST = 50


def use(
    model: arguments.Model,
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Let searches use a version from now on."""
    from tunefleet.core.home import default_home
    from tunefleet.runs.pretrained import pretrained_model, use
    from tunefleet.store import open_store

    root = home or default_home()
    entry = pretrained_model(model, root)
    registry = arguments.registry(home)
    with closing(open_store(root)) as store:
        use(registry, store, "", registry.keep(entry).card.id)
    typer.echo(f"searches use {entry.card.name}, {entry.card.id[:12]}")


def history(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """Show what was learned in the background."""
    from tunefleet.core.home import default_home
    from tunefleet.runs.pretrained import in_use
    from tunefleet.store import open_store

    root = home or default_home()
    if not root.is_dir():  # reading must not create a store
        raise InputError(f"there is no home at {root}", cure="choose another home")
    with closing(open_store(root)) as store:
        entry = in_use(arguments.registry(home), store, "")
        learnings = store.explorer.learnings("", _MOST)

    def show() -> None:
        for each in reversed(learnings):
            typer.echo(_line(each))
        typer.echo(f"searches use {entry.card.name}, {entry.card.id[:12]}")

    figures = {"in_use": entry.card.id, "learnings": [asdict(each) for each in learnings]}
    output.tell(json, figures, show)


def _line(learning: Learning) -> str:
    from tunefleet.report.units import format_some
    from tunefleet.runs.lifelong import told

    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(learning.at))
    records = f"{format_some(learning.records, 'record')}: " if learning.records else ""
    return f"{at}  {records}{told(learning)}"
