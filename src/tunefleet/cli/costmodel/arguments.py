"""Shared options of the `tunefleet costmodel` commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import output, parsing
from tunefleet.cli.bad_lines import BadLines
from tunefleet.cli.outcome import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tunefleet.costmodel.registry import Registry, RegistryEntry
    from tunefleet.dataset import splits as dataset_splits
    from tunefleet.learning.records import Records

#: Default number of members.
SEEDS = 3


def name(value: str | None) -> str | None:
    """Refuse an invalid model name."""
    from tunefleet.costmodel.card import check_name

    try:
        return value if value is None else check_name(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def registry(home: Path | None) -> Registry:
    """The user's models and the shipped ones."""
    from tunefleet.core.home import default_home
    from tunefleet.costmodel.registry import registry_of

    return registry_of(home or default_home())


def read(files: list[Path], device: str, progress: Callable[[str], None]) -> Records:
    """The records of all files; bad lines of logs are reported on stderr."""
    from tunefleet.learning.records import read_records

    bad = BadLines()
    records = read_records(files, device=device, on_bad=bad, progress=progress)
    bad.end()
    return records


def own_name(registry: Registry, parent: RegistryEntry) -> str:
    """The default name of a version with a parent. It never replaces a shipped model, which is the
    default of searches."""
    return f"my-{parent.card.name}" if registry.is_shipped(parent) else parent.card.name


def tell_which_steers(
    registry: Registry, entry: RegistryEntry, learned_from: RegistryEntry | None = None
) -> None:
    """Report on stderr which version searches use, if a new one has the name of a shipped model or
    continues one."""
    name = entry.card.name
    hidden = registry.shipped_of(name)
    if hidden is not None:
        place = one_line(str(entry.path))
        text = (
            f"{name} now means this version, also for searches; the shipped version is "
            f"{hidden.card.id[:12]}: use that id, or remove {place}"
        )
    elif learned_from is not None and registry.is_shipped(learned_from):
        text = f"to use it in a search: tunefleet tune NETWORK --pretrained {name}"
    else:
        return
    output.console(stderr=True).print(f"note: {text}", soft_wrap=True)


def reporter(quiet: bool) -> Callable[[str], None]:
    """A progress callback: lines on stderr, or nothing."""
    if quiet:
        return lambda text: None
    console = output.console(stderr=True)
    return lambda text: console.print(one_line(text), style="dim", soft_wrap=True)


def show_metrics(
    models: Mapping[str, Sequence[Mapping[str, Any]]], seconds: Mapping[str, float] | None = None
) -> None:
    """Print metrics of models, given as JSON values: a table per device."""
    from tunefleet.report.costmodel_text import metrics_tables

    console = output.console()
    for table in metrics_tables(models, seconds):
        console.print(table)
        console.print()


def split_text(name: str, split: dataset_splits.SplitRows) -> str:
    """`by_task: 800 records to train, 100 to validate, 100 to test`."""
    counts = {part: len(numbers) for part, numbers in split.parts().items()}
    return (
        f"{name}: {counts['train']:,} records to train, {counts['validation']:,} to validate, "
        f"{counts['test']:,} to test"
    )


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A cost model: name (your newest version, else the shipped one), id or prefix of an "
        "id, or path of an exported one.",
        show_default=False,
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEMA",
        help="The features of a program: tilings/1 (the default), sequences/1, per-store/1, "
        "behaviours/1.",
        show_default=False,
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        metavar="N", callback=parsing.positive, help="Members to train, each with its own seed."
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="cpu|cuda",
        help="Where attention and unified train: cpu or cuda. Prediction runs on the CPU.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=parsing.positive,
        help="Maximum epochs of neural models.",
        show_default=False,
    ),
]
Hidden = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=parsing.positive,
        help="Width of a neural model; choose a small one for few records.",
        show_default=False,
    ),
]
Replay = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=parsing.not_negative,
        help="Programs that a unified model keeps from each training and replays in later ones. "
        "[default: 1024]",
        show_default=False,
    ),
]
