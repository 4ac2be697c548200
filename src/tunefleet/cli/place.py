"""`tunefleet place`: which device should run which task of a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.runs.context import BenchmarkContext


def place(
    network: options.Network,
    device: Annotated[
        list[str],
        typer.Option(
            "--device",
            metavar="NAME[=TARGET]",
            help="A device of `tunefleet devices`, or local for this machine, and the target that "
            "it was tuned for if that is not its own; two or more.",
            show_default=False,
        ),
    ],
    threads: options.Threads = None,
    shape: options.Shape = None,
    dim: options.Dim = None,
    constant: options.Constant = None,
    trust: options.Trust = False,
    precision: options.Precision = "float32",
    calibrate: options.Calibrate = None,
    device_key: options.DeviceKey = "",
    quiet: options.Quiet = False,
    server: options.OnServer = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Choose the fastest of several devices for each task of a network.

    Transfers between devices count.
    """
    from tunefleet.compiler.frontends.spec import network_name

    network_name(network)
    from tunefleet.core.importing import ImportOptions
    from tunefleet.runs.errands import place as placed
    from tunefleet.runs.request import shape_request

    shapes = shape_request(
        parsing.by_input(shape), parsing.by_dimension(dim), parsing.by_constant(constant)
    )
    if server is not None:
        from tunefleet.cli.remote import check_unused, client_of, of_network

        check_unused(server, trust=trust, device_key=device_key)
        asked = {**of_network(shape, dim, constant), "precision": precision, "threads": threads}
        with client_of(server) as client:
            found = client.place(network, _targets(device), calibrate=calibrate, **asked)
        output.tell(json, found, lambda: _show(found))
        return
    contexts = _contexts(device, threads, device_key, home)
    notes = output.console(stderr=True)

    def tell(text: str) -> None:
        if not quiet:
            notes.print(text, soft_wrap=True, markup=False)

    report = placed(
        network,
        contexts,
        ImportOptions(shapes, whole=True, trust=trust),
        tell,
        precision=precision,
        calibrate=calibrate,
    )
    output.tell(json, report, lambda: _show(report))


def _contexts(
    devices: list[str], threads: int | None, key: str, home: Path | None
) -> dict[str, BenchmarkContext]:
    from tunefleet.runs.context import BenchmarkContext

    return {
        name: BenchmarkContext(target, device=name, device_key=key, threads=threads, home=home)
        for name, target in _targets(devices).items()
    }


def _targets(devices: list[str]) -> dict[str, str]:
    """By the names of devices."""
    targets: dict[str, str] = {}
    for text in devices:
        name, _, target = text.partition("=")
        if name in targets:
            raise InputError(f"{name} is given twice", cure="name each device once")
        targets[name] = target or "cpu"
    return targets


def _show(report: dict[str, Any]) -> None:
    from tunefleet.report.placement_text import placement_table, totals_table

    console = output.console()
    console.print(placement_table(report))
    console.print(totals_table(report))
