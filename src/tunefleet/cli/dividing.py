"""The options that say how records are divided, for every command that divides them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.cli import parsing
from tunefleet.dataset.division import BY_NETWORK, DEFAULT, SPLITS, WITHIN_TASK, Division, Shares

DEFAULT_SPLIT = WITHIN_TASK
DEFAULT_TEST, DEFAULT_VALIDATION = DEFAULT.test, DEFAULT.validation


def _split(value: str) -> str:
    return parsing.one_of(SPLITS, value, "split")


def _share(value: float) -> float:
    if not 0 < value < 1:
        raise typer.BadParameter(f"{value:g} is not a share between 0 and 1")
    return value


def division(
    split: str,
    hold_out: str | None,
    networks: Path | None,
    test: float,
    validation: float,
    seed: int,
    max_records: int | None,
) -> Division:
    """What these options ask for. Raises InputError for what does not go together."""
    from tunefleet.dataset.splits import read_networks

    listed = None if networks is None else read_networks(networks)
    return Division(split, hold_out, seed, Shares(test, validation), max_records, listed)


def figures(asked: Division) -> dict[str, Any]:
    """A division for --json."""
    return {
        "split": asked.name,
        "hold_out": asked.hold_out,
        "seed": asked.seed,
        "max_records": asked.max_records,
    }


Split = Annotated[
    str,
    typer.Option(
        metavar="|".join(SPLITS),
        callback=_split,
        help="What is not shared by training and test: a program, a task, a device, a network.",
    ),
]
HoldOut = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The device (or processor of a target) that tests, or the networks with commas "
        "between.",
        show_default=False,
    ),
]
Networks = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f'For {BY_NETWORK}: workloads by network, {{"network": ["workload", ...]}} in JSON; '
        "the default is those of each log, by the name of its file.",
        show_default=False,
    ),
]
TestShare = Annotated[
    float,
    typer.Option("--test", metavar="SHARE", callback=_share, help="Share of records to test."),
]
ValidationShare = Annotated[
    float,
    typer.Option("--validation", metavar="SHARE", callback=_share, help="Share to validate."),
]
MaxRecords = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=parsing.positive,
        help="Records to train on, at most; half as many test, a quarter validate.",
        show_default=False,
    ),
]
