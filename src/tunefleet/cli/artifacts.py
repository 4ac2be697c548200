"""Commands on an artifact: run it, measure it, read its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.core.home import Home, default_home

if TYPE_CHECKING:
    from tunefleet.client import Client
    from tunefleet.core.result import Evaluation
    from tunefleet.core.statistics import Interval


def run(
    artifact: options.Artifact,
    input: Annotated[
        list[str],
        typer.Option(metavar="X.npy", help="One input; repeat in the order of the network."),
    ],
    output_path: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.npy",
            callback=parsing.writable,
            help="Where the output goes; several become OUT-0.npy, OUT-1.npy, ...",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(metavar="N", callback=parsing.positive, help="Also time N calls."),
    ] = None,
    require_signed: options.RequireSigned = None,
    server: options.OnServer = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Run a tuned network on arrays in .npy files.

    It prints the largest values of each output. Inputs of another type are cast where no value is
    lost; float64 may be rounded to float32.
    """
    if server is not None:
        with _client(server, require_signed) as client:
            value = client.call_artifact(artifact, input, repeat, output_path)
        for note in value["casts"]:
            _note(note)
        output.tell(json, value, lambda: _show(value))
        return
    from tunefleet.runs.calling import call_artifact, save_outputs

    value = call_artifact(
        artifact,
        [Path(path) for path in input],
        repeat=repeat,
        save=partial(save_outputs, path=Path(output_path)) if output_path else None,
        home=home,
        signed_by=require_signed,
        heard=_note,
        alone=partial(_alone, artifact, home),
    )
    output.tell(json, value, lambda: _show(value))


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _client(server: str, require_signed: Path | None) -> Client:
    from tunefleet.cli.remote import check_unused, client_of

    check_unused(server, require_signed=require_signed)
    return client_of(server)


def _alone(
    artifact: str, home: Path | None, content: str, timed: Callable[[], Interval]
) -> Interval:
    """What is `timed` while no command of the home measures. Without a home there is none."""
    at_home = home or default_home()
    if not Home(at_home).store.is_file():
        return timed()
    from tunefleet.runs.errands import timed_run

    return timed_run(artifact, at_home, content, timed, _say)


def _say(text: str) -> None:
    output.console(stderr=True).print(text, soft_wrap=True, markup=False)


def _show(value: dict[str, Any]) -> None:
    for item in value["outputs"]:
        shape = ", ".join(map(str, item["shape"]))
        line = f"{item['name']}: {item['dtype']}[{shape}]"
        if item["min"] is not None:
            line += f", from {item['min']:.6g} to {item['max']:.6g}"
        typer.echo(line + (f", written to {item['path']}" if item["path"] else ""))
        for top in item["top"]:
            typer.echo(f"  [{', '.join(map(str, top['index']))}]  {top['value']:.6g}")
    latency, repeat = value["latency_ms"], value["repeats"]
    if latency is not None:
        from tunefleet.report.units import format_latency

        median, low, high = (
            format_latency(latency[each] / 1e3) for each in ("median", "low", "high")
        )
        calls = f"{repeat} call{'' if repeat == 1 else 's'}"
        typer.echo(f"latency {median} ({low} to {high}), the median of {calls}")


def evaluate(
    artifact: options.Artifact,
    rounds: Annotated[
        int, typer.Option(metavar="N", callback=parsing.positive, help="Rounds of measuring.")
    ] = 12,
    require_signed: options.RequireSigned = None,
    server: options.OnServer = None,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Measure a tuned network again, beside its source framework."""
    from tunefleet.runs.errands import evaluate_artifact

    if server is None:
        result = evaluate_artifact(artifact, home, rounds, require_signed, _say)
    else:
        with _client(server, require_signed) as client:
            result = client.evaluate_artifact(artifact, rounds)
    output.tell(json, result.to_dict(), lambda: _show_evaluation(result))


def _show_evaluation(result: Evaluation) -> None:
    from tunefleet.report.text import evaluation_table, kernels_table

    console = output.console()
    if result.kernels:
        console.print(kernels_table(result))
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True, markup=False)
    console.print(evaluation_table(result))
    places = {"report": "the report of the artifact", "jobs": "`tunefleet jobs`"}
    if result.filled_in:
        console.print(f"now in {' and in '.join(places[each] for each in result.filled_in)}")


def report(
    artifact: options.Artifact,
    open_path: Annotated[
        bool, typer.Option("--open-path", help="Print only the path of the HTML report.")
    ] = False,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Show the report of a tuned network and the path of its page."""
    from tunefleet.artifacts.opening import open_artifact

    # Read anywhere, also where the artifact's code cannot run.
    opened = open_artifact(artifact, home)
    page = opened.report
    if open_path:
        typer.echo(str(page))
        return
    from tunefleet.cli.summary import show
    from tunefleet.report.result import read_result

    written = read_result(opened.result, str(opened.manifest))
    # Where it lies now, not where it was written: an artifact may have been moved.
    result = replace(written, artifact=str(opened.path), report=str(page))
    output.tell(json, result.to_dict(), lambda: show(result, tasks=None))


def sign(
    artifact: options.Artifact,
    key: Annotated[
        Path, typer.Option(metavar="KEY.pem", help="Your private Ed25519 key.", show_default=False)
    ],
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Sign a tuned network with your private key."""
    from tunefleet.artifacts import signature
    from tunefleet.artifacts.artifact import check_all_files
    from tunefleet.artifacts.opening import open_artifact

    opened = open_artifact(artifact, home)
    check_all_files(opened)  # it answers for all of them
    signed = str(signature.sign(opened.manifest, key))
    value = {"artifact": str(opened.path), "signature": signed}
    output.tell(json, value, lambda: typer.echo(signed))
