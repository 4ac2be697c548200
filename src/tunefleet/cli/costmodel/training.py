"""`tunefleet costmodel train`: trains a new version of a cost model."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tunefleet.cli import dividing, options, output
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.dataset import arguments as dataset
from tunefleet.cli.outcome import one_line

SCHEMA = "tunefleet-costmodel-train/1"


def train(
    records: dataset.Files,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", callback=arguments.name, help="Name of the model."),
    ],
    model: Annotated[
        str, typer.Option(metavar="KIND", help="attention, unified, mlp, xgb, lgbm or random.")
    ] = "lgbm",
    features: arguments.Features = None,
    split: dividing.Split = dividing.DEFAULT_SPLIT,
    hold_out: dividing.HoldOut = None,
    networks: dividing.Networks = None,
    test: dividing.TestShare = dividing.DEFAULT_TEST,
    validation: dividing.ValidationShare = dividing.DEFAULT_VALIDATION,
    max_records: dividing.MaxRecords = None,
    seed: dataset.Seed = 0,
    seeds: arguments.Seeds = arguments.SEEDS,
    parent: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The parent version: attention and unified continue from its weights, other kinds "
            "train from scratch.",
            show_default=False,
        ),
    ] = None,
    device: arguments.Device = "cpu",
    epochs: arguments.Epochs = None,
    hidden: arguments.Hidden = None,
    replay: arguments.Replay = None,
    measured_on: dataset.MeasuredOn = "",
    limits: Annotated[
        str, typer.Option(metavar="TEXT", help="Known limits of the model, for its card.")
    ] = "",
    home: options.Home = None,
    quiet: options.Quiet = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Train a cost model on records, test it and save it."""
    from tunefleet.dataset.splits import divide
    from tunefleet.learning import evaluation, inputs, training, versions

    progress = arguments.reporter(quiet)
    registry = arguments.registry(home)
    # Invalid options fail before records are read and features extracted.
    schema = inputs.extractor(features or inputs.DEFAULT).name
    how = training.Options(epochs, device, hidden, replay)
    how.check([model])
    division = dividing.division(split, hold_out, networks, test, validation, seed, max_records)
    follows = None
    if parent is not None:
        follows = registry.get(parent)
        versions.check_parent(follows.card, schema)
    table = arguments.read(records, measured_on, progress)
    start = versions.start_of(follows, model, table) if follows else ()
    divided = divide(table.rows, division)
    drawn = inputs.Inputs.of(table, inputs.all_rows(divided), schema, progress)
    parts = drawn.parts(model, divided)
    trained = training.train(
        model, parts.train, parts.validation, seeds=seeds, options=how, progress=progress,
        start=start,
    )  # fmt: skip
    tested = evaluation.evaluate(trained.members, parts.test)
    ancestor = follows.card if follows else None
    origin = versions.Origin(name, schema, table, division, divided, ancestor, limits)
    entry = versions.publish(registry, origin, trained, tested, time.time())

    def show() -> None:
        arguments.show_metrics({model: [each.to_json() for each in tested]})
        typer.echo(arguments.split_text(split, divided))
        typer.echo(f"saved as {name}, {entry.card.id[:12]}, in {one_line(str(entry.path))}")

    figures = {"schema": SCHEMA, "path": str(entry.path), "seconds": list(trained.seconds)}
    output.tell(json, {**figures, "card": entry.card.to_json()}, show)
    arguments.tell_which_steers(registry, entry)
