"""`tunefleet costmodel`: cost models from records, where they come from, how good they are."""

from __future__ import annotations

import typer

from tunefleet.cli.costmodel import comparing, evaluating, exporting, learning, listing, training

app = typer.Typer(
    name="costmodel",
    help="Cost models learned from records, and how good they are.",
    rich_markup_mode=None,
)

app.command("train")(training.train)
app.command("learn")(learning.learn)
app.command("evaluate")(evaluating.evaluate)
app.command("compare")(comparing.compare)
app.command("list")(listing.list_)
app.command("show")(listing.show)
app.command("export")(exporting.export)
