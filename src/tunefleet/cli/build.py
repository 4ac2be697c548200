"""`tunefleet build`: a module of what is known, without a search."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunefleet.cli import help as sections
from tunefleet.cli import options, output, parsing


def build(
    network: options.Network,
    target: options.Target = "native",
    threads: options.Threads = None,
    shape: options.Shape = None,
    dim: options.Dim = None,
    constant: options.Constant = None,
    whole: options.Whole = False,
    trust: options.Trust = False,
    precision: options.Precision = "float32",
    calibrate: options.Calibrate = None,
    inputs: options.Inputs = None,
    from_job: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="JOB",
            rich_help_panel=sections.SEARCH,
            help="Take the programs of this job alone; the default is the best of all jobs.",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Also measure it end to end beside its source framework."),
    ] = False,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    device: options.Devices = None,
    device_kind: options.DeviceKind = "",
    device_key: options.DeviceKey = "",
    home: options.Home = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
    traceback: options.Traceback = False,
) -> None:
    """Build a network of what jobs verified, without a search.

    The best of exactly this device and toolchain are compiled and verified as a whole; tasks
    without one keep their plain schedule. What was built before of the same programs is found
    again.
    """
    from tunefleet.compiler.frontends.spec import network_name

    network_name(network)
    context: dict[str, Any] = {
        "device": device or (),
        "device_kind": device_kind,
        "device_key": device_key,
        "threads": threads,
        "host_cores": parsing.core_numbers(host_cores),
        "device_cores": parsing.core_numbers(device_cores),
        "home": home,
    }
    from tunefleet.cli.live import watch
    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.runs.known import build as build_known

    with watch([network], output.console(stderr=True), quiet=quiet) as view:
        result = build_known(
            network,
            from_job=from_job,
            measure=measure,
            context=BenchmarkContext(target, **context),
            observer=view.observer(0),
            shapes=parsing.by_input(shape),
            dims=parsing.by_dimension(dim),
            constants=parsing.by_constant(constant),
            whole=whole,
            trust=trust,
            precision=precision,
            calibrate=calibrate,
            inputs=inputs,
        )

    def show() -> None:
        from tunefleet.cli import summary

        summary.show(result, tasks=20)

    output.tell(json, result.to_dict(), show)
