"""`tunefleet costmodel learn`: continues the training of a model on new records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import dividing, options, output, parsing
from tunefleet.cli.costmodel import arguments
from tunefleet.cli.dataset import arguments as dataset
from tunefleet.cli.outcome import one_line
from tunefleet.core.settings import MOST_FORGOTTEN
from tunefleet.errors import InputError
from tunefleet.system.scratch import scratch_folder

if TYPE_CHECKING:
    from tunefleet.costmodel.card import Card
    from tunefleet.learning.progress import ReportProgress

SCHEMA = "tunefleet-costmodel-learn/1"


def learn(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="The version to train further: name (the newest), id or path.",
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
        bool, typer.Option("--from-home", help="Use the records of this home's searches.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            callback=arguments.name,
            help="Name of the new version; the default is the name of the model, or my-NAME for a "
            "shipped one.",
            show_default=False,
        ),
    ] = None,
    most_loss: Annotated[
        float,
        typer.Option(
            metavar="SCORE",
            callback=parsing.not_negative,
            help="Largest allowed loss of top-1 or top-5 on earlier trainings.",
        ),
    ] = MOST_FORGOTTEN,
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
    """Train a unified model on more records.

    The new version is saved unless it forgets too much.
    """
    from tunefleet.learning import growing, training
    from tunefleet.learning.continuing import continued
    from tunefleet.report.units import format_some

    progress = arguments.reporter(quiet)
    registry = arguments.registry(home)
    parent = registry.get(model)
    kind = parent.card.kind
    how = training.Options(epochs, device)
    how.check([kind])
    growing.check_learns(parent.card, parent.load())
    division = dividing.division(split, hold_out, networks, test, validation, seed, max_records)
    with _files(add or [], from_home, home, parent.card, progress) as files:
        table = arguments.read(files, measured_on, progress)
    made = continued(parent, table, division, how, progress)
    called = name or arguments.own_name(registry, parent)
    growing.check_recall(called, made.recalls, most_loss)
    tested = made.tested()
    entry = made.publish(registry, called, tested, time.time())

    def show() -> None:
        arguments.show_metrics({kind: [each.to_json() for each in tested]})
        for recall in made.recalls:
            before, after = recall.before, recall.after
            typer.echo(
                f"learned before ({recall.number}), {format_some(recall.records, 'record')}: "
                f"top-1 {before['top1']:.3f} to {after['top1']:.3f}, "
                f"top-5 {before['top5']:.3f} to {after['top5']:.3f}"
                f"{'' if recall.has_order else ' (no task has records to rank: not comparable)'}"
            )
        typer.echo(arguments.split_text(split, made.divided))
        typer.echo(f"saved as {called}, {entry.card.id[:12]}, in {one_line(str(entry.path))}")

    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "path": str(entry.path),
        "seconds": list(made.trained.seconds),
        "recall": [asdict(recall) for recall in made.recalls],
    }
    output.tell(json, {**figures, "card": entry.card.to_json()}, show)
    arguments.tell_which_steers(registry, entry, parent)


@contextmanager
def _files(
    add: list[Path], from_home: bool, home: Path | None, parent: Card, progress: ReportProgress
) -> Iterator[list[Path]]:
    """The files to train on; those of a home exist only while this context is open."""
    if not add and not from_home:
        raise InputError("no records given", cure="give records with --add, or use --from-home")
    for path in add:
        if not path.exists():
            raise InputError(f"{path} does not exist", cure="give existing records")
    with scratch_folder("learn") as folder:
        of_home = _of_home(Path(folder), home, parent, progress) if from_home else []
        yield [*add, *of_home]


def _of_home(folder: Path, home: Path | None, parent: Card, progress: ReportProgress) -> list[Path]:
    """A file for each ended job of a home that the parent was not trained on."""
    from tunefleet.core.home import default_home
    from tunefleet.learning.records import file_sha256
    from tunefleet.runs.collected import write_ended
    from tunefleet.store import open_store

    home = home or default_home()
    if not home.is_dir():  # reading must not create a store
        raise InputError(f"no search in {home} has measured anything", cure="choose another home")
    store = open_store(home)
    try:
        files, running = write_ended(folder, store)
    finally:
        store.close()
    if running:
        progress(f"skipped {running:,} job{'s' * (running > 1)} that have not ended")
    if not files:
        cure = "wait for its jobs, or cancel them" if running else "choose another home"
        raise InputError(f"no ended search in {home} has measured anything", cure=cure)
    new = [path for path in files if file_sha256(path) not in parent.taught_by]
    if not new:
        raise InputError(
            f"{parent.name} was already trained on all searches of {home}", cure="tune more first"
        )
    return new
