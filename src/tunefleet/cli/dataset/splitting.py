"""`tunefleet dataset split`: records to train, to validate and to test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tunefleet.dataset.rows import Rows
    from tunefleet.dataset.splits import Shares, Split

SCHEMA = "tunefleet-split/1"
WITHIN_TASK, IN_ORDER, TASK, TARGET, NETWORK = SPLITS = (
    "within_task", "within_task_in_order", "by_task", "by_target", "by_network",
)  # fmt: skip


def _one(value: str) -> str:
    arguments.one_of(SPLITS, value)
    return value


def split(
    records: arguments.Records,
    split: Annotated[
        str,
        typer.Option(
            metavar="|".join(SPLITS),
            callback=_one,
            help="What is not shared by training and test: a program, a task, a device, a network.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            callback=options.directory,
            help="Where train.parquet, validation.parquet and test.parquet are written.",
        ),
    ],
    hold_out: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The device (or processor of a target) or the network that tests.",
            show_default=False,
        ),
    ] = None,
    networks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Workloads by network, {"network": ["workload", ...]} in JSON; the default is '
            "those of each log, by the name of its file.",
        ),
    ] = None,
    test: arguments.TestShare = 0.1,
    validation: arguments.ValidationShare = 0.1,
    seed: arguments.Seed = 0,
    force: arguments.Force = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Split records into train.parquet, validation.parquet and test.parquet."""
    from tunefleet.dataset import parquet
    from tunefleet.dataset.rows import Rows
    from tunefleet.dataset.splits import Shares

    _check_hold_out(split, hold_out, networks)
    shares = Shares(test, validation)
    paths = {part: out / f"{part}.parquet" for part in ("train", "validation", "test")}
    for path in paths.values():
        arguments.check_free(path, force)
    table = parquet.read_table(records)
    rows = Rows.of(table)
    found = _split(split, rows, shares, seed, hold_out or "", networks)
    _make(out)
    for part, numbers in found.parts().items():
        parquet.write(table.take(numbers).to_batches(parquet.BATCH_ROWS), paths[part])
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "output": str(out),
        "split": split,
        "hold_out": hold_out,
        "seed": seed,
        "parts": {
            part: {"records": len(numbers), "tasks": len(set(rows.task[numbers].tolist()))}
            for part, numbers in found.parts().items()
        },
    }
    text = "\n".join(
        f"{one_line(str(paths[part]))}: {counts['records']:,} records, {counts['tasks']:,} tasks"
        for part, counts in figures["parts"].items()
    )
    output.tell(json, figures, lambda: typer.echo(text))


def _check_hold_out(split: str, hold_out: str | None, networks: Path | None) -> None:
    if split in (TARGET, NETWORK) and hold_out is None:
        what = "device" if split == TARGET else "network"
        raise InputError(f"{split} needs the {what} that tests", cure="name it with --hold-out")
    if split not in (TARGET, NETWORK) and hold_out is not None:
        raise InputError(f"--hold-out does not go with {split}", cure=f"use {TARGET} or {NETWORK}")
    if split != NETWORK and networks is not None:
        raise InputError(f"--networks does not go with {split}", cure=f"use --split {NETWORK}")


def _split(
    split: str, rows: Rows, shares: Shares, seed: int, hold_out: str, networks: Path | None
) -> Split:
    from tunefleet.dataset import splits

    if split == WITHIN_TASK:
        return splits.within_task(rows, shares, seed)
    if split == IN_ORDER:
        return splits.within_task_in_order(rows, shares)
    if split == TASK:
        return splits.by_task(rows, shares, seed)
    if split == TARGET:
        return splits.by_target(rows, hold_out, shares, seed)
    known: Mapping[str, Collection[str]]
    known = splits.networks_by_log(rows) if networks is None else splits.read_networks(networks)
    return splits.by_network(rows, splits.workloads_of(known, hold_out), shares, seed)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the directory {directory}: {error.strerror}", cure="choose another one"
        ) from error
