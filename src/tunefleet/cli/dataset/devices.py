"""`tunefleet dataset devices`: shows the device table, or one device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefleet.cli import options, output
from tunefleet.cli.dataset import arguments

if TYPE_CHECKING:
    from tunefleet.hardware import HardwareTable

SCHEMA = "tunefleet-devices/1"

DevicesFile = Annotated[
    Path | None,
    typer.Option(
        "--devices",
        metavar="FILE",
        callback=lambda value: value and arguments.existing(value),
        help="A TOML file with your own devices, in the format of the shipped table.",
    ),
]


def hardware(path: Path | None) -> HardwareTable:
    """The shipped table, with the user's rows before it."""
    from tunefleet.hardware import shipped_table

    return shipped_table() if path is None else shipped_table().with_file(path)


def devices(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Any name of a device: v100, 'Tesla V100', 2080ti.",
            show_default=False,
        ),
    ] = None,
    own: DevicesFile = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List the device table, or show one device."""
    from tunefleet.report.hardware_text import hardware_pairs, hardware_table

    table = hardware(own)
    rows = list(table) if name is None else [table.find(name)]

    def show() -> None:
        console = output.console()
        if name is not None:
            console.print(hardware_pairs(rows[0]))
            return
        console.print(hardware_table(rows))
        console.print(f"\n{len(rows)} devices, peaks in TFLOP/s; tensor units: fp16")

    value = {"schema": SCHEMA, "devices": [row.to_json() for row in rows]}
    output.tell(json, value, show)
