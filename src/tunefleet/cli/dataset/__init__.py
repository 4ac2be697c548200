"""`tunefleet dataset`: import, analyse, split and collect tuning records."""

from __future__ import annotations

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
from tunefleet.cli.help import Commands

app = Commands(
    name="dataset",
    help="Import, analyse, split and collect tuning records.",
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
