"""`tunefleet records`: the best verified programs, taken elsewhere and brought in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.dataset.arguments import Force, check_free, existing
from tunefleet.cli.help import Commands
from tunefleet.errors import InputError

app = Commands(name="records", help="List, export and import the best verified programs.")

Task = Annotated[str, typer.Option("--task", metavar="ID", help="Only tasks whose id begins so.")]
Operator = Annotated[
    str, typer.Option("--operator", metavar="NAME", help="Only tasks of this operator: conv2d.")
]
Device = Annotated[
    str,
    typer.Option("--device", metavar="TEXT", help="Only devices with this in their name or key."),
]


@app.command()
def best(
    task: Task = "",
    operator: Operator = "",
    device: Device = "",
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", callback=parsing.positive, help="Only the first N."),
    ] = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List the fastest verified program of each task and device."""
    from tunefleet.core.home import default_home
    from tunefleet.runs.records import best_records

    found = best_records(
        home or default_home(), task=task, operator=operator, device=device, limit=limit
    )
    output.tell(json, {"records": found}, lambda: _show(found))


def _show(found: list[dict[str, Any]]) -> None:
    if not found:
        typer.echo("no verified records: tunefleet tune zoo:tiny_cnn")
        return
    from tunefleet.report.records_text import records_table

    output.console().print(records_table(found))


@app.command()
def export(
    out: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT.jsonl", help="Where the lines go.", show_default=False
        ),
    ],
    task: Task = "",
    operator: Operator = "",
    device: Device = "",
    force: Force = False,
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Write the same as lines of JSON, with their programs.

    `dataset gather` writes every trial, as Parquet.
    """
    from tunefleet.core.home import default_home
    from tunefleet.runs.records import export_records

    check_free(out, force)
    place = home or default_home()
    if not place.is_dir():  # reading must not create a store
        raise InputError(f"no records in {place}", cure="choose another home")
    count = export_records(place, out, task=task, operator=operator, device=device)
    output.console(stderr=True).print(f"{count:,} records in {out}", soft_wrap=True)


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            callback=existing,
            help="Another home, an artifact or its records.jsonl, Parquet of `dataset gather`, or "
            "a database of MetaSchedule.",
            show_default=False,
        ),
    ],
    network: Annotated[
        str | None,
        typer.Option(metavar="NETWORK", help="Whose tasks they are; a home says that itself."),
    ] = None,
    target: options.Target = "native",
    threads: options.Threads = None,
    shape: options.Shape = None,
    dim: options.Dim = None,
    constant: options.Constant = None,
    precision: options.Precision = "float32",
    calibrate: options.Calibrate = None,
    device: options.Devices = None,
    device_kind: options.DeviceKind = "",
    device_key: options.DeviceKey = "",
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Bring in programs that were measured elsewhere.

    Those measured on exactly this device and toolchain count as records. Those of compatible ones
    start searches. Others are refused.
    """
    if network is not None:
        from tunefleet.compiler.frontends.spec import network_name

        network_name(network)
    from tunefleet.core.importing import ImportOptions
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.runs.records_import import import_records
    from tunefleet.runs.request import shape_request, source_of

    context = BenchmarkContext(
        target,
        device=device or (),
        device_kind=device_kind,
        device_key=device_key,
        threads=threads,
        home=home,
    )
    shapes = shape_request(
        parsing.by_input(shape), parsing.by_dimension(dim), parsing.by_constant(constant)
    )
    asked = (
        None
        if network is None
        else source_of(network, ImportOptions(shapes), context, precision, calibrate)
    )
    done = import_records(source, context, asked)
    output.tell(json, done.to_json(), lambda: _tell(done.to_json()))
    if not (done.records or done.starts or done.known):
        reason = max(done.refused, key=done.refused.__getitem__, default="there are none")
        raise InputError(f"nothing of {source} is of use here: {reason}")


def _tell(done: dict[str, Any]) -> None:
    lines = [
        f"{done['records']:,} records of this device, {done['verified']:,} of them verified",
        f"{done['starts']:,} programs of compatible devices, which searches start from",
    ]
    if done["known"]:
        lines.append(f"{done['known']:,} were imported before")
    lines += [f"{count:,} refused: {reason}" for reason, count in done["refused"].items()]
    lines += [f"job {job[:8]}" for job in done["jobs"]]
    for line in lines:
        typer.echo(line)


@app.command()
def share(
    reader: Annotated[
        str, typer.Argument(metavar="USER", help="Or all; without it, who may is listed.")
    ] = "",
    stop: Annotated[bool, typer.Option("--stop", help="They may not any more.")] = False,
    home: options.Home = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Let users of a service begin with your records.

    With --server they are those of your jobs there, else those of this home's commands.
    """
    if stop and not reader:
        raise InputError("--stop says nobody's name", cure="name a user, or all")
    from tunefleet.store import EVERYONE

    name = EVERYONE if reader == "all" else reader
    if server:
        from tunefleet.cli.remote import client_of
        from tunefleet.client.calls import Call, value_of

        call = Call("GET", "/v1/shares")
        if name and stop:
            call = Call("DELETE", f"/v1/shares/{quote(name)}")
        elif name:
            call = Call("POST", "/v1/shares", {"reader": name})
        with client_of(server) as client:
            readers = client.done(value_of(call))["readers"]
    else:
        from tunefleet.core.home import default_home
        from tunefleet.runs.records import share_records

        readers = share_records(home or default_home(), name, shared=not stop)
    shown = ["all" if each == EVERYONE else each for each in readers]
    text = f"shared with {', '.join(shown)}" if shown else "shared with nobody"
    output.tell(json, {"readers": readers}, lambda: typer.echo(text))
