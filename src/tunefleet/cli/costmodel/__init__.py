"""`tunefleet costmodel`: train, evaluate and list cost models."""

from __future__ import annotations

from tunefleet.cli.costmodel import (
    comparing,
    evaluating,
    exporting,
    learning,
    listing,
    training,
    using,
)
from tunefleet.cli.help import Commands

app = Commands(
    name="costmodel",
    help="Train, evaluate and compare cost models.",
)

app.command("train")(training.train)
app.command("learn")(learning.learn)
app.command("use")(using.use)
app.command("history")(using.history)
app.command("evaluate")(evaluating.evaluate)
app.command("compare")(comparing.compare)
app.command("list")(listing.list_)
app.command("show")(listing.show)
app.command("export")(exporting.export)
