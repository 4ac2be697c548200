"""`tunefleet costmodel evaluate`: metrics of a trained model on records."""

from __future__ import annotations

from typing import Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.dataset import arguments as dataset

SCHEMA = "tunefleet-costmodel-evaluation/1"


def evaluate(
    model: arguments.Model,
    records: dataset.Files,
    measured_on: dataset.MeasuredOn = "",
    home: options.Home = None,
    quiet: options.Quiet = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Evaluate a cost model on records, compared with a random ranking.

    For the files of its training, only the test part is used.
    """
    from tunefleet.learning import evaluation
    from tunefleet.learning.inputs import Inputs
    from tunefleet.report.units import format_some

    progress = arguments.reporter(quiet)
    entry = arguments.registry(home).get(model)
    members = entry.load()
    table = arguments.read(records, measured_on, progress)
    numbers, note = evaluation.unseen(entry.card, table)
    drawn = Inputs.of(table, numbers, entry.card.features, progress)
    tested = evaluation.evaluate(members, drawn.examples(entry.card.kind))
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "model": entry.card.id,
        "name": entry.card.name,
        "records": len(numbers),
        "note": note,
        "metrics": [device.to_json() for device in tested],
    }

    def show() -> None:
        arguments.show_metrics({entry.card.kind: figures["metrics"]})
        typer.echo(f"{format_some(figures['records'], 'record')}; {note}")

    output.tell(json, figures, show)
