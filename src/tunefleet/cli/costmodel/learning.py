"""`tunefleet costmodel learn`: a model learns a device or an instruction more."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.cli import dividing, options, output
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.dataset import arguments as dataset
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError

SCHEMA = "tunefleet-costmodel-learn/1"
MOST_LOSS = 0.03


def learn(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="The version that learns more, by name (the newest), id or path.",
            show_default=False,
        ),
    ],
    add: Annotated[
        list[Path] | None,
        typer.Option(
            "--add",
            metavar="DATASET",
            help="Records in Parquet, logs of any format, or folders of logs; may be repeated.",
            show_default=False,
        ),
    ] = None,
    from_home: Annotated[
        bool, typer.Option("--from-home", help="Learn from what searches of this home measured.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            callback=arguments.name,
            help="What to call the new version; the default is the name of the model.",
            show_default=False,
        ),
    ] = None,
    most_loss: Annotated[
        float,
        typer.Option(
            metavar="SCORE",
            callback=options.not_negative,
            help="The most that top-1 or top-5 of what it knew may fall by.",
        ),
    ] = MOST_LOSS,
    split: dividing.Split = dividing.DEFAULT_SPLIT,
    hold_out: dividing.HoldOut = None,
    networks: dividing.Networks = None,
    test: dividing.TestShare = dividing.DEFAULT_TEST,
    validation: dividing.ValidationShare = dividing.DEFAULT_VALIDATION,
    max_records: dividing.MaxRecords = None,
    seed: dataset.Seed = 0,
    device: arguments.Device = "cpu",
    epochs: arguments.Epochs = None,
    measured_on: dataset.MeasuredOn = "",
    home: options.Home = None,
    quiet: options.Quiet = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Teach a unified model more records, and keep the new version unless it forgets too much."""
    from tunefleet.dataset.splits import divide
    from tunefleet.learning import evaluation, growing, inputs, training, versions

    progress = arguments.reporter(quiet)
    registry = arguments.registry(home)
    parent = registry.get(model)
    kind, schema = parent.card.kind, parent.card.features
    how = training.Options(epochs, device)
    how.check([kind])
    growing.check_learns(parent.card, parent.load())
    division = dividing.division(split, hold_out, networks, test, validation, seed, max_records)
    with _files(add or [], from_home, home) as files:
        table = arguments.read(files, measured_on, progress)
    start = versions.start_of(parent, kind, table)
    divided = divide(table.rows, division)
    drawn = inputs.Inputs.of(table, inputs.all_rows(divided), schema, progress)
    parts = drawn.parts(kind, divided)
    trained = training.train(
        kind, parts.train, parts.validation, seeds=len(start), options=how, progress=progress,
        start=start,
    )  # fmt: skip
    recalls = growing.recalled(start, trained.members)
    called = name or parent.card.name
    growing.check_recall(called, recalls, most_loss)
    tested = evaluation.evaluate(trained.members, parts.test)
    origin = versions.Origin(called, schema, table, division, divided, parent.card)
    entry = versions.publish(registry, origin, trained, tested, time.time())

    def show() -> None:
        arguments.show_metrics({kind: [each.to_json() for each in tested]})
        for recall in recalls:
            before, after = recall.before, recall.after
            typer.echo(
                f"learned before ({recall.number}), {recall.records:,} records: "
                f"top-1 {before['top1']:.3f} to {after['top1']:.3f}, "
                f"top-5 {before['top5']:.3f} to {after['top5']:.3f}"
            )
        typer.echo(arguments.split_text(split, divided))
        typer.echo(f"kept as {called}, {entry.card.id[:12]}, in {one_line(str(entry.path))}")

    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "path": str(entry.path),
        "seconds": list(trained.seconds),
        "recall": [asdict(recall) for recall in recalls],
    }
    output.tell(json, {**figures, "card": entry.card.to_json()}, show)


@contextmanager
def _files(add: list[Path], from_home: bool, home: Path | None) -> Iterator[list[Path]]:
    """The files to learn from; those of a home are written for as long as they are read."""
    if not add and not from_home:
        raise InputError("nothing to learn from", cure="name records by --add, or use --from-home")
    for path in add:
        if not path.exists():
            raise InputError(f"{path} does not exist", cure="name records that are there")
    with tempfile.TemporaryDirectory(prefix="tunefleet-learn-") as folder:
        gathered = [_of_home(Path(folder, "home.parquet"), home)] if from_home else []
        yield [*add, *gathered]


def _of_home(out: Path, home: Path | None) -> Path:
    from tunefleet.cli.dataset.gathering import gathered
    from tunefleet.core.home import default_home

    home = home or default_home()
    # Looking must not create a store.
    if not home.is_dir() or not gathered(out, home, None):
        raise InputError(f"no search in {home} has measured anything", cure="name another home")
    return out
