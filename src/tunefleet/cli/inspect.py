"""Commands that look and start nothing: tasks, networks, doctor, version."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.networks import describe_networks
from tunefleet.errors import SetupError


def tasks(
    network: options.Network,
    target: options.Target = "native",
    threads: options.Threads = None,
    shape: options.Shape = None,
    dim: options.Dim = None,
    constant: options.Constant = None,
    whole: options.Whole = False,
    trust: options.Trust = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List the tasks of a network by their share of its FLOPs."""
    from tunefleet.compiler.frontends.spec import network_name

    network_name(network)
    from tunefleet.core.importing import ImportOptions
    from tunefleet.runs.listing import list_tasks
    from tunefleet.runs.request import shape_request

    shapes = shape_request(
        parsing.by_input(shape), parsing.by_dimension(dim), parsing.by_constant(constant)
    )
    listing = list_tasks(network, target, threads, ImportOptions(shapes, whole, trust))
    output.tell(json, listing, lambda: _show_tasks(listing))


def _show_tasks(listing: dict[str, Any]) -> None:
    from tunefleet.report.text import listing_table
    from tunefleet.report.words import outside_lines

    console = output.console()
    console.print(listing_table(listing))
    for line in [*listing["notes"], *outside_lines(listing["outside"])]:
        console.print(line, soft_wrap=True, markup=False)


def networks(json: options.Json = None, traceback: options.Traceback = False) -> None:
    """List the networks of the zoo: they need no download."""
    entries = describe_networks()
    output.tell(json, {"networks": entries}, lambda: _show_networks(entries))


def _show_networks(entries: list[dict[str, Any]]) -> None:
    width = max(len(e["name"]) for e in entries) + len("zoo:")
    for entry in entries:
        defaults = " ".join(f"{k}={v}" for k, v in entry["parameters"].items())
        typer.echo(f"{'zoo:' + entry['name']:<{width}}  {entry['about']} ({defaults})")


_SERVED_AS_BEFORE = (
    "other cores slow each other down than before, and the server of this home does not know it: "
    "end it with tunefleet serve --stop, and begin it again"
)


def doctor(
    threads: options.Threads = None,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Check whether this machine can tune, and what to improve."""
    from tunefleet.core.home import default_home
    from tunefleet.devices.doctor import examine
    from tunefleet.devices.neighbours import joined_cores
    from tunefleet.fleet.leases import machine_units, measuring
    from tunefleet.hardware.processor import machine_layout
    from tunefleet.runs.submitting import server_of

    host, device = parsing.core_numbers(host_cores), parsing.core_numbers(device_cores)
    at_home = home or default_home()
    joined = joined_cores(at_home)
    choice = machine_layout(threads, host, device, joined)
    units = machine_units(choice.layout.host_units | choice.layout.device_units)
    with measuring(at_home, units, "doctor", lambda text: typer.echo(text, err=True)):
        examination = examine(choice, at_home)
    output.tell(json, examination, lambda: _show_checks(examination))
    if joined != joined_cores(at_home) and server_of(at_home) is not None:
        typer.echo(f"note: {_SERVED_AS_BEFORE}", err=True)
    if any(check["severity"] == "error" for check in examination["checks"]):
        raise typer.Exit(SetupError.exit_code)


def _show_checks(examination: dict[str, Any]) -> None:
    from tunefleet.report.text import checks_table

    output.console().print(checks_table(examination))


def version(json: options.Json = None, traceback: options.Traceback = False) -> None:
    """Print the versions of tunefleet and its compiler."""
    versions = {name: _version(name) for name in ("tunefleet", "apache-tvm", "xgboost", "torch")}
    lines = "\n".join(f"{name} {text}" for name, text in versions.items())
    output.tell(json, versions, lambda: typer.echo(lines))


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
