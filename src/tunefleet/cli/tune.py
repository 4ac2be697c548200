"""`tunefleet tune`: from a network to a verified artifact."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.outcome import Stopped

DEFAULT_TRIALS = 1000


def _number(metavar: str, help: str, check: Any = options.positive) -> Any:
    return typer.Option(metavar=metavar, help=help, callback=check)


def tune(
    network: options.Network,
    target: options.Target = "native",
    threads: options.Threads = None,
    trials: Annotated[
        int | None, _number("N", f"Stop after N trials; {DEFAULT_TRIALS} when no budget is given.")
    ] = None,
    minutes: Annotated[float | None, _number("M", "Stop after M minutes.")] = None,
    target_latency_ms: Annotated[
        float | None, _number("L", "Stop when the estimated latency is at most L ms.")
    ] = None,
    batch: Annotated[int | None, _number("N", "Trials per round of a task.")] = None,
    first_batch: Annotated[int | None, _number("N", "Trials of a task's first round.")] = None,
    profile_timeout: Annotated[
        float | None, _number("S", "Seconds after which a measurement is given up.")
    ] = None,
    build_timeout: Annotated[
        float | None, _number("S", "Seconds after which a build is given up.")
    ] = None,
    population: Annotated[
        int | None, _number("N", "Candidates in the evolutionary search.")
    ] = None,
    generations: Annotated[
        int | None,
        _number("N", "Generations of the evolutionary search.", options.not_negative),
    ] = None,
    seed: Annotated[int | None, _number("N", "Seed of the search.", options.not_negative)] = None,
    cost_model: Annotated[
        str,
        typer.Option(
            metavar="|".join(options.COST_MODELS),
            callback=options.cost_model,
            help="What ranks candidates.",
        ),
    ] = "xgb",
    no_transfer: Annotated[
        bool, typer.Option("--no-transfer", help="Ignore the records of earlier jobs.")
    ] = False,
    device_key: options.DeviceKey = "",
    home: options.Home = None,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="OUT",
            callback=options.writable,
            help="Also write the result as JSON; - is stdout, and then nothing else goes there.",
        ),
    ] = None,
    new_job: Annotated[
        bool, typer.Option("--new-job", help="Start afresh even where a job was interrupted.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")] = False,
    traceback: options.Traceback = False,
) -> None:
    """Tune a network for a device into a verified artifact.

    An interrupted command continues where it stopped when it is given again.
    """
    settings = _settings(
        {
            "search": {
                "batch": batch,
                "first_batch": first_batch,
                "population": population,
                "generations": generations,
                "seed": seed,
                "cost_model": cost_model,
            },
            "build": {"timeout_s": build_timeout},
            "measure": {"timeout_s": profile_timeout},
        },
        transfer=not no_transfer,
    )
    if trials is None and minutes is None:
        trials = DEFAULT_TRIALS
    _check_network(network)
    result = _tuned(
        network,
        {"target": target, "device_key": device_key, "threads": threads, "home": home},
        {
            "trials": trials,
            "minutes": minutes,
            "target_latency_ms": target_latency_ms,
            "settings": settings,
            "new_job": new_job,
        },
        quiet=quiet,
    )
    if json != options.STDOUT:
        from tunefleet.cli.summary import show

        show(result, tasks=20)
    if json is not None:
        output.write_json(json, result)


def _settings(given: dict[str, dict[str, Any]], *, transfer: bool) -> Any:
    """TuneSettings with the defaults of what was not given."""
    from tunefleet.core.settings import (
        BuildSettings,
        MeasureSettings,
        SearchSettings,
        TuneSettings,
    )

    chosen = {
        room: {name: value for name, value in values.items() if value is not None}
        for room, values in given.items()
    }
    return TuneSettings(
        search=SearchSettings(**chosen["search"]),
        build=BuildSettings(**chosen["build"]),
        measure=MeasureSettings(**chosen["measure"]),
        transfer=transfer,
    )


def _check_network(network: str) -> None:
    """Refuse a wrong name or file before the seconds that the compiler takes to load."""
    from tunefleet.compiler.frontends.spec import network_name

    network_name(network)


def _tuned(
    network: str, context: dict[str, Any], request: dict[str, Any], *, quiet: bool
) -> dict[str, Any]:
    from tunefleet.cli.live import watch

    with watch([network], output.console(stderr=True), quiet=quiet) as view:
        progress, observer = view.overview.jobs[0], view.observer(0)
        try:
            from tunefleet.session import BenchmarkContext, Session

            with Session(BenchmarkContext(arch=None, **context), observer=observer) as session:
                session.from_network(network)
                progress.peak_gflops = getattr(session, "peak_gflops", None)
                session.autotune(**request).build().save().evaluate()
                return session.result()
        except KeyboardInterrupt:
            trials = progress.trials
            raise Stopped(
                f"stopped: {trials} trial{'' if trials == 1 else 's'} are kept; "
                "the same command continues"
            ) from None
