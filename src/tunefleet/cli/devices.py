"""`tunefleet devices` and `tunefleet device`: what measures, here and behind TVM's RPC."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.help import Commands
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.core.device import DeviceSpec
    from tunefleet.devices.registry import DeviceRegistry

#: For which a device that is added is waited for: somebody sits there.
_PATIENCE_S = 5.0

app = Commands(
    name="device",
    help="Add and remove devices that TVM's RPC reaches.",
)


@app.command("add")
def add(
    url: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            help="rpc://HOST:PORT of a server, or tracker://HOST:PORT/KEY; with #cuda:0 behind it, "
            "a GPU of that server.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Your name for it; the default is made of the address."),
    ] = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Ask a device what it is, and name it. A tracker's key names all of its servers."""
    from tunefleet.core.device import RegisteredDevice
    from tunefleet.devices.registry import check_name
    from tunefleet.runs.asking import ask_apart

    spec = _spec(url)
    assert spec.rpc is not None
    address = spec.rpc
    chosen = check_name(_default_name(spec) if name is None else name)
    found = ask_apart(spec, name=name or "", patience_s=_PATIENCE_S)
    description = found.description
    added = RegisteredDevice(chosen, spec, description, time.time())
    _registry(home).add(added)
    text = f"{chosen} is {description.identity} ({description.machine}) at {spec.url}"
    if address.tracker:
        text += f": {found.asked} of {found.servers} servers were free and asked"
    value = {**added.to_json(), "servers": found.servers, "asked": found.asked}
    output.tell(json, value, lambda: typer.echo(text))


@app.command("remove")
def remove(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="As `devices` lists it.", show_default=False)
    ],
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Forget a device; its records are kept."""
    removed = _registry(home).remove(name)
    text = f"{name} is forgotten; its records are kept"
    output.tell(json, removed.to_json(), lambda: typer.echo(text))


def devices(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """List the devices, whether they answer and who uses them."""
    from tunefleet.devices.health import healths_of
    from tunefleet.devices.listing import listed_devices

    listed = listed_devices(_registry(home))
    states = healths_of([device.spec for device in listed])
    rows = [
        {
            "name": device.name,
            "address": device.spec.url,
            **device.description.to_json(),
            "health": health.to_json(),
        }
        for device, health in zip(listed, states, strict=True)
    ]
    output.tell(json, rows, lambda: _show(rows))


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("device", "address", "state", "ping", "machine", "what it is"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        identity, health = row["identity"], row["health"]
        ping = "" if not health["ping_ms"] else f"{health['ping_ms']:.1f} ms"
        state = health["state"]
        if row["address"].startswith("tracker://") and health["servers"]:
            state += f", {health['free']} of {health['servers']} free"
        if health["detail"]:
            state += f" ({health['detail']})"
        units = "multiprocessors" if "gpu" in row else "cores"
        what = f"{identity['name']}, {identity['cores']} {units}, {identity['memory_gib']} GiB"
        table.add_row(row["name"], row["address"], state, ping, row["machine"], what)
    output.console().print(table)


def _spec(url: str) -> DeviceSpec:
    from tunefleet.core.device import DeviceSpec

    try:
        return DeviceSpec.parse(url)
    except ValueError as error:
        raise InputError(
            f"'{url}' is no address of a device: {error}", cure="write it like rpc://board:9090"
        ) from error


def _default_name(spec: DeviceSpec) -> str:
    address = spec.rpc
    assert address is not None
    # A name begins with a letter or a digit, an address of IPv6 may with a colon.
    own = f"{address.host.replace(':', '-')}-{address.port}".lstrip("-")
    name = address.key if address.tracker else own
    return name if spec.gpu is None else f"{name}-{spec.kind}{spec.gpu}"


def _registry(home: Path | None) -> DeviceRegistry:
    from tunefleet.core.home import Home, default_home
    from tunefleet.devices.registry import DeviceRegistry

    return DeviceRegistry(Home(home or default_home()).devices)
