"""`tunefleet costmodel list` and `show`."""

from __future__ import annotations

import sys
from typing import Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.outcome import one_line


def list_(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """List cost models, newest first."""
    models = arguments.registry(home)
    entries, damaged = models.list()
    for error in damaged:
        print(f"skipped: {one_line(str(error))}", file=sys.stderr)
    cards = [
        {
            **entry.card.to_json(),
            "shipped": models.is_shipped(entry),
            "by_name": models.called(entry.card.name, entries) is entry,
        }
        for entry in entries
    ]
    output.tell(json, {"models": cards}, lambda: _show_models(cards))


def _show_models(cards: list[dict[str, Any]]) -> None:
    if not cards:
        typer.echo("no cost models yet: tunefleet costmodel train RECORDS --name NAME")
    else:
        from tunefleet.report.costmodel_text import models_table

        output.console().print(models_table(cards))


def show(
    model: arguments.Model,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Show a cost model's lineage, settings, metrics and limits."""
    card = arguments.registry(home).get(model).card.to_json()
    output.tell(json, card, lambda: _show_card(card))


def _show_card(card: dict[str, Any]) -> None:
    from tunefleet.report.costmodel_text import card_pairs

    output.console().print(card_pairs(card))
    typer.echo()
    arguments.show_metrics({card["kind"]: card["metrics"]})
