"""`tunefleet dataset`: tuning logs of any tool as one Parquet file, and what is done with it."""

from __future__ import annotations

import typer

from tunefleet.cli.dataset import (
    collecting,
    devices,
    exporting,
    gathering,
    importing,
    merging,
    sampling,
    showing,
    splitting,
    stats,
)

app = typer.Typer(
    name="dataset",
    help="Tuning logs of any tool as records in Parquet.",
    rich_markup_mode=None,
)

app.command("import")(importing.import_)
app.command("export")(exporting.export)
app.command("merge")(merging.merge)
app.command("show")(showing.show)
app.command("stats")(stats.stats)
app.command("sample")(sampling.sample)
app.command("split")(splitting.split)
app.command("collect")(collecting.collect)
app.command("gather")(gathering.gather)
app.command("devices")(devices.devices)
