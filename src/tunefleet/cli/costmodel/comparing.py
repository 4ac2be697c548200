"""`tunefleet costmodel compare`: compares kinds of model on one split."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunefleet.cli import dividing, options, output
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.dataset import arguments as dataset
from tunefleet.core.statistics import median

SCHEMA = "tunefleet-costmodel-comparison/1"


def _kinds(value: str) -> str:
    if not value.replace(",", "").strip():
        raise typer.BadParameter("give at least one kind of model")
    return value


def compare(
    records: dataset.Files,
    models: Annotated[
        str,
        typer.Option(
            metavar="KIND,...",
            callback=_kinds,
            help="Comma-separated: attention, unified, mlp, xgb, lgbm, random.",
        ),
    ] = "xgb,lgbm,mlp",
    features: arguments.Features = None,
    split: dividing.Split = dividing.DEFAULT_SPLIT,
    hold_out: dividing.HoldOut = None,
    networks: dividing.Networks = None,
    test: dividing.TestShare = dividing.DEFAULT_TEST,
    validation: dividing.ValidationShare = dividing.DEFAULT_VALIDATION,
    max_records: dividing.MaxRecords = None,
    seed: dataset.Seed = 0,
    seeds: arguments.Seeds = arguments.SEEDS,
    device: arguments.Device = "cpu",
    epochs: arguments.Epochs = None,
    hidden: arguments.Hidden = None,
    measured_on: dataset.MeasuredOn = "",
    quiet: options.Quiet = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Train several kinds of model on the same split and compare them.

    No model is saved.
    """
    from tunefleet.dataset.splits import divide
    from tunefleet.learning import evaluation, inputs, training

    progress = arguments.reporter(quiet)
    kinds = list(dict.fromkeys(filter(None, (kind.strip() for kind in models.split(",")))))
    schema = inputs.extractor(features or inputs.DEFAULT).name
    how = training.Options(epochs, device, hidden)
    how.check(kinds)
    division = dividing.division(split, hold_out, networks, test, validation, seed, max_records)
    table = arguments.read(records, measured_on, progress)
    divided = divide(table.rows, division)
    drawn = inputs.Inputs.of(table, inputs.all_rows(divided), schema, progress)
    results: list[dict[str, Any]] = []
    for kind in kinds:
        parts = drawn.parts(kind, divided)
        trained = training.train(
            kind, parts.train, parts.validation, seeds=seeds, options=how.of(kind),
            progress=progress,
        )  # fmt: skip
        tested = evaluation.evaluate(trained.members, parts.test)
        results.append(
            {
                "model": kind,
                "seeds": list(trained.seeds),
                "train_s": list(trained.seconds),
                "metrics": [each.to_json() for each in tested],
            }
        )

    def show() -> None:
        seconds = {result["model"]: median(result["train_s"]) for result in results}
        arguments.show_metrics({result["model"]: result["metrics"] for result in results}, seconds)
        typer.echo(arguments.split_text(split, divided))

    counts = {part: len(numbers) for part, numbers in divided.parts().items()}
    figures = {"schema": SCHEMA, "features": schema, **dividing.figures(division),
               "records": counts, "models": results}  # fmt: skip
    output.tell(json, figures, show)
