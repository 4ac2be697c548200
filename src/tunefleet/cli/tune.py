"""`tunefleet tune`: from networks to verified artifacts."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import help, options, output, parsing
from tunefleet.cli.contexts import contexts_of
from tunefleet.cli.outcome import Stopped
from tunefleet.core.settings import COST_MODELS, SHIPPED_MODEL
from tunefleet.errors import InputError, JobError
from tunefleet.scheduler.names import PREDICTIVE

if TYPE_CHECKING:
    from tunefleet.cli.live import View
    from tunefleet.core.result import RunResult
    from tunefleet.runs.tuning import Tuned

NO_MODEL = "none"


def _number(metavar: str, text: str, check: Any = parsing.positive, of: str = help.SEARCH) -> Any:
    return typer.Option(metavar=metavar, help=text, callback=check, rich_help_panel=of)


def _budget(metavar: str, text: str, check: Any = parsing.positive) -> Any:
    return _number(metavar, text, check, help.BUDGET)


def tune(
    networks: options.Networks,
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
    trials: Annotated[
        int | None, _budget("N", "Stop after N trials; 1000 when no budget is given.")
    ] = None,
    minutes: Annotated[
        float | None, _budget("M", "Stop after M minutes of tuning.", parsing.minutes)
    ] = None,
    trials_per_task: Annotated[
        int | None, _budget("N", "Stop when each task has N trials.")
    ] = None,
    device_minutes: Annotated[
        float | None,
        _budget("M", "Stop after M minutes of measuring on the device.", parsing.minutes),
    ] = None,
    target_latency_ms: Annotated[
        float | None, _budget("L", "Stop when an inference is measured to take at most L ms.")
    ] = None,
    speedup: Annotated[
        float | None,
        _budget("X", "Stop when the network is measured to be X times as fast as its framework."),
    ] = None,
    most_lost: Annotated[
        float | None,
        _budget(
            "D",
            "Deliver nothing whose outputs differ by more than D from its framework, such as 0.01.",
        ),
    ] = None,
    deadline: Annotated[
        list[str] | None,
        _budget(
            "[NETWORK=]M",
            "Stop the search M minutes from now and deliver what it has; the predictive policy "
            "hurries such networks. Repeat it to give each network its own.",
            parsing.deadlines,
        ),
    ] = None,
    priority: Annotated[
        list[str] | None,
        _budget(
            "[NETWORK=]N",
            "Of networks with a higher priority more is done at a time; 0 is usual. Repeat it to "
            "give each network its own.",
            parsing.priorities,
        ),
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
        _number("N", "Generations of the evolutionary search.", parsing.not_negative),
    ] = None,
    seed: Annotated[int | None, _number("N", "Seed of the search.", parsing.not_negative)] = None,
    cost_model: Annotated[
        str,
        typer.Option(
            metavar="|".join(COST_MODELS),
            rich_help_panel=help.SEARCH,
            callback=parsing.cost_model,
            help="What learns from this search's own trials.",
        ),
    ] = COST_MODELS[0],
    pretrained: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            rich_help_panel=help.SEARCH,
            help="The cost model that steers from the first trial: a name or an id of "
            "`tunefleet costmodel list`, or none. It steers the tasks of kinds that it has "
            "learned. The default comes with tunefleet.",
        ),
    ] = SHIPPED_MODEL,
    policy: options.Policy = PREDICTIVE,
    look_ahead: options.LookAhead = None,
    allow_interference: options.AllowInterference = False,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    no_transfer: Annotated[
        bool,
        typer.Option(
            "--no-transfer",
            rich_help_panel=help.SEARCH,
            help="Ignore the records of earlier jobs.",
        ),
    ] = False,
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=TARGET]",
            rich_help_panel=help.PLACE,
            help="Measure on this device of `tunefleet devices` instead of this machine's "
            "processor, which is `local`; `cuda:0` is its first GPU. Given again: devices that are "
            "alike share a job, others have one each.",
        ),
    ] = None,
    device_kind: options.DeviceKind = "",
    device_key: options.DeviceKey = "",
    home: options.Home = None,
    json: options.Json = None,
    new_job: Annotated[
        bool,
        typer.Option(
            "--new-job",
            rich_help_panel=help.SEARCH,
            help="Start afresh even where a job was interrupted.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Leave the jobs to the server of the home (see serve), which begins where none "
            "runs; `watch` shows them.",
        ),
    ] = False,
    quiet: options.Quiet = False,
    traceback: options.Traceback = False,
) -> None:
    """Tune networks for devices and write a verified artifact of each.

    Several networks are tuned at once, each for every kind of device that is named. Each has the
    whole budget. An interrupted command continues where it stopped when it is given again.
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
                "pretrained": "" if pretrained == NO_MODEL else pretrained,
            },
            "build": {"timeout_s": build_timeout},
            "measure": {"timeout_s": profile_timeout},
        },
        transfer=not no_transfer,
    )
    for network in networks:
        _check_network(network)
    _check_model(pretrained, home)
    context = {
        "target": target,
        "device": device or [],
        "device_kind": device_kind,
        "device_key": device_key,
        "threads": threads,
        "host_cores": parsing.core_numbers(host_cores),
        "device_cores": parsing.core_numbers(device_cores),
        "home": home,
    }
    request = {
        "trials": trials,
        "minutes": minutes,
        "target_latency_ms": target_latency_ms,
        "trials_per_task": trials_per_task,
        "device_minutes": device_minutes,
        "speedup": speedup,
        "most_lost": most_lost,
        "settings": settings,
        "new_job": new_job,
        "priorities": parsing.by_network("priority", priority, networks, int),
        "deadlines_s": {
            name: minutes * 60
            for name, minutes in parsing.by_network("deadline", deadline, networks, float).items()
        },
        "policy": policy,
        "look_ahead": look_ahead,
        "allow_interference": allow_interference,
    }
    importing = {
        "shapes": parsing.by_input(shape),
        "dims": parsing.by_dimension(dim),
        "constants": parsing.by_constant(constant),
        "whole": whole,
        "trust": trust,
        "precision": precision,
        "calibrate": calibrate,
        "inputs": inputs,
    }
    _tune(networks, context, importing | request, json, quiet=quiet, detach=detach)


def _settings(given: dict[str, dict[str, Any]], *, transfer: bool) -> Any:
    """TuneSettings with the defaults of what was not given. Raises InputError."""
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
    try:
        return TuneSettings(
            search=SearchSettings(**chosen["search"]),
            build=BuildSettings(**chosen["build"]),
            measure=MeasureSettings(**chosen["measure"]),
            transfer=transfer,
        )
    except ValueError as error:
        raise InputError(str(error), cure="see `tunefleet tune --help`") from error


def _check_network(network: str) -> None:
    """Refuse a wrong name or file before the seconds that the compiler takes to load."""
    from tunefleet.compiler.frontends.spec import network_name

    network_name(network)


def _check_model(name: str, home: Path | None) -> None:
    """Refuse a cost model that is not there or cannot steer a search."""
    if name != NO_MODEL:
        from tunefleet.core.home import default_home
        from tunefleet.runs.pretrained import pretrained_model

        pretrained_model(name, home or default_home())


def _stopped(view: View) -> Stopped:
    """What the user is told who stops a command."""
    trials = sum(job.trials for job in view.overview.jobs)
    return Stopped(
        f"stopped: {trials} trial{'' if trials == 1 else 's'} are kept; the same command continues"
    )


def _check_search(network: str, result: RunResult) -> None:
    """A search that measured nothing is no success, though there is something to run."""
    from tunefleet.stages.failures import search_failed

    reason = search_failed(result)
    if reason:
        raise JobError(
            f"{network}: {reason}",
            cure="try other settings, then report it with the failures in the report",
        )


def _tune(
    networks: list[str],
    context: dict[str, Any],
    request: dict[str, Any],
    json: str | None,
    *,
    quiet: bool,
    detach: bool,
) -> None:
    """Networks at once, on each kind of device; the first error is raised when all have ended."""
    clock = time.monotonic()
    contexts = contexts_of(context)
    rows = [n if len(contexts) == 1 else f"{n} on {c.place}" for n in networks for c in contexts]
    with ExitStack() as watching:
        from tunefleet.cli.live import watch

        console = output.console(stderr=True)
        view = watching.enter_context(watch(rows, console, quiet=quiet or detach))

        def leave() -> bool:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                return False
            watching.close()
            return not _wants_stop()

        def tell(outcomes: Sequence[Tuned]) -> None:
            watching.close()
            left = [outcome for outcome in outcomes if not (outcome.result or outcome.error)]
            if left:
                _tell_left(left, json)
                return
            _tell(rows, outcomes, json, wall_s=time.monotonic() - clock, shares=view.shares())

        from tunefleet.runs.tuning import tune as tune_networks

        try:
            outcomes = tune_networks(
                networks,
                contexts=contexts,
                observer=view.observer,
                tell=tell,
                detach=detach,
                leave=leave,
                **request,
            )
        except KeyboardInterrupt:
            raise _stopped(view) from None
    failed = next((o.error for o in outcomes if o.error is not None), None)
    if failed is not None:
        raise failed
    for row, outcome in zip(rows, outcomes, strict=True):
        if outcome.result is not None:
            _check_search(row, outcome.result)


def _wants_stop() -> bool:
    """Ask whether jobs that a server does are to stop as well."""
    text = "leave it running (l), or stop it (s; Ctrl-C)? [l] "
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower().startswith("s")
    except KeyboardInterrupt:
        return True


def _tell_left(left: Sequence[Tuned], json: str | None) -> None:
    """Jobs that are with the server."""
    lines = [
        f"job {o.job[:8]} ({o.network}) is with the server; tunefleet watch {o.job[:8]} shows it"
        for o in left
    ]
    values = [{"network": o.network, "job": o.job} for o in left]
    output.tell(json, values, lambda: typer.echo("\n".join(lines)))


def _tell(
    networks: Sequence[str],
    outcomes: Sequence[Tuned],
    json: str | None,
    *,
    wall_s: float,
    shares: dict[str, float],
) -> None:
    def show() -> None:
        from tunefleet.cli import summary

        if len(outcomes) > 1:
            told = [str(o.error) if o.result is None else o.result for o in outcomes]
            summary.show_several(networks, told, wall_s=wall_s, shares=shares)
        elif outcomes[0].result is not None:
            summary.show(outcomes[0].result, tasks=20)

    values = [o.result.to_dict() if o.result else {"error": str(o.error)} for o in outcomes]
    output.tell(json, values, show)
