"""`tunefleet dataset collect`: measures programs of many networks' tasks on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.dataset import arguments, gathering
from tunefleet.cli.outcome import Stopped
from tunefleet.errors import JobError

if TYPE_CHECKING:
    from tunefleet.cli.dataset.collecting_view import Watcher
    from tunefleet.runs.collection import Gathered


def _parquet(value: str | None) -> str | None:
    return None if value is None else arguments.parquet_output(value)


def _all_positive(values: list[int]) -> list[int]:
    return [parsing.positive(value) for value in values]


def collect(
    networks: Annotated[
        list[str] | None,
        typer.Option(
            "--networks",
            metavar="NETWORK",
            help="A network; may be repeated. [default: all configurations of the zoo]",
        ),
    ] = None,
    targets: Annotated[
        list[str],
        typer.Option(
            "--targets",
            metavar="TARGET",
            help="native, or a processor whose code runs on this machine: nehalem (SSE4.2), "
            "haswell (AVX2), skylake-avx512. May be repeated.",
        ),
    ] = ["native"],  # noqa: B006 (typer copies it)
    threads: Annotated[
        list[int],
        typer.Option(
            "--threads",
            metavar="N",
            callback=_all_positive,
            help="Threads of the code; may be repeated.",
        ),
    ] = [1],  # noqa: B006
    programs_per_task: Annotated[
        int,
        typer.Option(metavar="N", callback=parsing.positive, help="Programs to measure per task."),
    ] = 64,
    tensorised: Annotated[
        bool,
        typer.Option(
            "--tensorised",
            help="Only tasks with tensor instructions, such as those of ?precision=int8.",
        ),
    ] = False,
    device: options.Devices = None,
    device_kind: options.DeviceKind = "",
    device_key: options.DeviceKey = "",
    out: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.parquet",
            callback=_parquet,
            help="Write all records of these networks and targets.",
        ),
    ] = None,
    force: arguments.Force = False,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    home: options.Home = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
    traceback: options.Traceback = False,
) -> None:
    """Measure programs of networks' tasks for training cost models.

    A repeated command continues; a task shared by networks is collected once.
    """
    from tunefleet.compiler.frontends.spec import network_name
    from tunefleet.zoo.collection import CONFIGURATIONS

    if out is not None:
        arguments.check_free(Path(out), force)
    for network in networks or ():
        network_name(network)  # before loading the compiler: refuses invalid names
    wanted = networks or list(CONFIGURATIONS)
    with _watched(wanted, targets, threads, quiet=quiet) as watcher:
        from tunefleet.runs.collection import collect as run
        from tunefleet.runs.context import BenchmarkContext

        contexts = [
            BenchmarkContext(
                target,
                threads=count,
                device=device or (),
                device_kind=device_kind,
                device_key=device_key,
                host_cores=parsing.core_numbers(host_cores),
                device_cores=parsing.core_numbers(device_cores),
                home=home,
            )
            for target in targets
            for count in threads
        ]
        results = run(
            wanted, contexts, programs_per_task, tensorised=tensorised, observer=watcher.observer
        )
    if out is not None:
        gathering.write(out, contexts[0].home, [g.job_id for g in results if g.job_id])
    output.tell(json, [asdict(gathered) for gathered in results], lambda: _show(results))
    for gathered in results:
        if tensorised and not (gathered.tasks or gathered.skipped or gathered.error):
            text = f"{gathered.network}: none of its new tasks has tensor instructions"
            output.console(stderr=True).print(f"note: {text}", soft_wrap=True, markup=False)
    failed = [gathered for gathered in results if gathered.error]
    if failed:
        raise JobError(
            f"{len(failed)} of {len(results)} were not collected, {failed[0].network}: "
            f"{failed[0].error}",
            cure="run the same command again to retry",
        )


@contextmanager
def _watched(
    networks: Sequence[str], targets: Sequence[str], threads: Sequence[int], *, quiet: bool
) -> Iterator[Watcher]:
    from tunefleet.cli.dataset.collecting_view import Watcher
    from tunefleet.cli.overview import short_names

    places = [f"{t}/{n}" for t in targets for n in threads]
    short = short_names(networks) if len(networks) > 1 else list(networks)
    names = [
        f"{name} for {place}" if len(places) > 1 else name for place in places for name in short
    ]
    with Watcher(names, output.console(stderr=True), quiet=quiet) as watcher:
        try:
            yield watcher
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped: {watcher.tally.trials} records are saved; the same command continues"
            ) from None


def _show(results: Sequence[Gathered]) -> None:
    from tunefleet.report.grid import Grid
    from tunefleet.report.units import format_count

    table = Grid("Collected")
    # A native target's text is as long as a line and would push the figures out.
    table.add_column("target", overflow="fold")
    for heading in ("networks", "tasks", "records", "failed networks"):
        table.add_column(heading, justify="right", no_wrap=True)
    for target in dict.fromkeys(g.target for g in results):
        of_target = [g for g in results if g.target == target]
        table.add_row(
            target,
            format_count(sum(not g.error for g in of_target)),
            format_count(sum(g.tasks for g in of_target)),
            format_count(sum(g.trials for g in of_target)),
            format_count(sum(bool(g.error) for g in of_target)),
        )
    output.console().print(table)
