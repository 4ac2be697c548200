"""`tunefleet simulate`: what a policy makes of mock jobs on a mock fleet."""

from __future__ import annotations

import json as codec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.outcome import one_line
from tunefleet.errors import InputError
from tunefleet.scheduler.names import POLICY_NAMES
from tunefleet.system.files import read_small

if TYPE_CHECKING:
    from tunefleet.report import Timeline
    from tunefleet.scheduler.durations import LaneName, Replay
    from tunefleet.scheduler.simulator import Durations, Simulation
    from tunefleet.scheduler.values import Event

SCHEMA = "tunefleet-simulation/1"
ALL = "all"
SUFFIXES = (".png", ".svg", ".html")
THESIS, SPREAD = "thesis", "spread"
#: More would take longer than anyone waits for.
_MOST_STAGES = 4_000_000
#: Of a file of durations: the longest run has a few.
_MOST_BYTES = 64 << 20


def policies(values: list[str]) -> list[str]:
    """The names meant by `--policy`, each once, in the order of `POLICY_NAMES` for `all`."""
    for value in values:
        if value not in (*POLICY_NAMES, ALL):
            known = ", ".join((*POLICY_NAMES, ALL))
            raise typer.BadParameter(f"{value!r} is not a policy, choose of {known}")
    return list(POLICY_NAMES) if ALL in values else list(dict.fromkeys(values))


def drawing(value: str | None) -> str | None:
    """Refuse a file that is no drawing of ours, or that could not be written."""
    if value is not None and Path(value).suffix not in SUFFIXES:
        raise typer.BadParameter(f"{value} does not end in {', '.join(SUFFIXES)}")
    return parsing.writable(value)


def _number(metavar: str, help: str, check: Any = parsing.positive) -> Any:
    return typer.Option(metavar=metavar, help=help, callback=check)


def simulate(
    jobs: Annotated[int | None, _number("N", "Jobs; the default is 4, or a file's.")] = None,
    lanes: Annotated[int | None, _number("N", "Tasks of each job; 1, or a file's.")] = None,
    rounds: Annotated[int | None, _number("N", "Rounds of each task; 10, or a file's.")] = None,
    devices: Annotated[int, _number("N", "Devices.")] = 1,
    hosts: Annotated[int | None, _number("N", "Hosts; as many as devices.")] = None,
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="P",
            callback=policies,
            help=f"{', '.join(POLICY_NAMES)} or {ALL}; may be repeated.",
        ),
    ] = ["predictive"],  # noqa: B006 (typer copies it)
    durations: Annotated[
        str | None,
        typer.Option(
            metavar="D", help="thesis: its means; spread: around them; FILE.json: recorded rounds."
        ),
    ] = None,
    spread: Annotated[
        float | None,
        _number("CV", "Coefficient of variation of tasks, and of the stages of each; 0.5."),
    ] = None,
    seed: Annotated[int, _number("N", "Seed of the spread.", parsing.not_negative)] = 0,
    look_ahead: options.LookAhead = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Host and device of a number are one machine.")
    ] = False,
    allow_interference: Annotated[
        bool,
        typer.Option(
            "--allow-interference",
            help="Stages of all jobs may run on a resource at once, as fast as alone.",
        ),
    ] = False,
    gantt: Annotated[
        str | None,
        typer.Option(metavar="OUT", callback=drawing, help="Draw it: .png, .svg or .html."),
    ] = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Compare scheduling policies on simulated jobs and resources.

    Each is shown beside the least time that is possible.
    """
    if gantt is not None and len(policy) > 1:
        raise InputError("--gantt draws one policy", cure="give --policy once")
    seconds, mix = _mix(durations, spread, seed, (jobs, lanes, rounds))
    hosts = devices if hosts is None else hosts
    at_once = len({job for job, _ in mix}) if allow_interference else 1
    simulations = {
        name: _simulated(name, seconds, mix, (hosts, devices), shared, look_ahead, at_once)
        for name in policy
    }
    figures = {
        "schema": SCHEMA,
        "jobs": len({job for job, _ in mix}),
        "lanes": len(mix),
        "rounds": sum(mix.values()),
        "hosts": hosts,
        "devices": devices,
        "shared": shared,
        "interference": allow_interference,
        "policies": [_figures(name, simulation) for name, simulation in simulations.items()],
    }
    if gantt is not None:
        _draw(gantt, simulations[policy[0]], figures)
    output.tell(json, figures, lambda: _show(figures, gantt))


def _mix(
    durations: str | None,
    spread: float | None,
    seed: int,
    counts: tuple[int | None, int | None, int | None],
) -> tuple[Durations, dict[LaneName, int]]:
    """Where durations come from, and the rounds of each lane."""
    from tunefleet.scheduler import durations as sources
    from tunefleet.scheduler.mocks import lane_names

    durations = durations or (THESIS if spread is None else SPREAD)
    if spread is not None and durations != SPREAD:
        raise InputError(
            f"--spread does not go with --durations {durations}", cure=f"use {SPREAD}, or neither"
        )
    jobs, lanes, rounds = counts
    if durations not in (THESIS, SPREAD):
        replay = _read(durations)
        if jobs is not None or lanes is not None:
            _check_size(jobs or 1, lanes or 1, rounds or 1)
            replay = replay.dealt_to(lane_names(jobs or 1, lanes or 1))
        mix = {name: rounds or len(recorded) for name, recorded in replay.lanes.items()}
        _check_size(1, 1, sum(mix.values()))
        return replay, mix
    jobs, lanes, rounds = jobs or 4, lanes or 1, rounds or 10
    _check_size(jobs, lanes, rounds)
    mix = dict.fromkeys(lane_names(jobs, lanes), rounds)
    if durations == THESIS:
        return sources.THESIS, mix
    cv = 0.5 if spread is None else spread
    return sources.Spread(sources.THESIS.seconds, cv, cv, seed), mix


def _check_size(jobs: int, lanes: int, rounds: int) -> None:
    stages = 4 * jobs * lanes * rounds
    if stages > _MOST_STAGES:
        raise InputError(f"these are {stages:,} stages", cure=f"at most {_MOST_STAGES:,} go")


def _read(path: str) -> Replay:
    from tunefleet.scheduler.durations import Replay

    try:
        value = codec.loads(read_small(Path(path), _MOST_BYTES))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}",
            cure=f"give {THESIS}, {SPREAD} or a file to --durations",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", cure="give a JSON file") from error
    return Replay.from_json(value, path)


def _simulated(
    policy: str,
    seconds: Durations,
    mix: dict[LaneName, int],
    counts: tuple[int, int],
    shared: bool,
    look_ahead: bool | None,
    at_once: int,
) -> Simulation:
    from tunefleet.scheduler.core import Scheduler
    from tunefleet.scheduler.mocks import mock_fleet, mock_jobs
    from tunefleet.scheduler.policies import POLICIES
    from tunefleet.scheduler.simulator import simulate as run

    fleet = mock_fleet(*counts, shared=shared, at_once=at_once)
    arrivals: list[Event] = [*fleet, *mock_jobs(mix, lookahead=look_ahead)]
    return run(Scheduler(POLICIES[policy]()), arrivals, seconds)


def _figures(policy: str, simulation: Simulation) -> dict[str, Any]:
    from tunefleet.scheduler import bounds

    bound = bounds.lower_bound(simulation)
    waiting = bounds.waiting(span.waited_s for span in simulation.spans)
    return {
        "policy": policy,
        "look_ahead": bool(simulation.lookahead),
        "makespan_s": simulation.makespan_s,
        "lower_bound_s": bound.seconds,
        "limit": bound.limit,
        "ratio": simulation.makespan_s / bound.seconds if bound.seconds else 1.0,
        "utilisation": {
            **{str(role): share for role, share in bounds.role_utilisation(simulation).items()},
            **bounds.utilisation(simulation),
        },
        "waiting_s": {"median": waiting.median_s, "p95": waiting.p95_s},
        "completion_s": bounds.completion_s(simulation),
    }


def _show(figures: dict[str, Any], gantt: str | None) -> None:
    from tunefleet.report.grid import Grid
    from tunefleet.report.units import format_seconds, format_share

    table = Grid()
    table.add_column("policy")
    for name in ("makespan", "lower bound", "ratio", "hosts in use", "devices in use",
                 "waited, median", "95 %"):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for row in figures["policies"]:
        table.add_row(
            row["policy"],
            format_seconds(row["makespan_s"]),
            format_seconds(row["lower_bound_s"]),
            f"{row['ratio']:.3f}",
            format_share(row["utilisation"]["host"]),
            format_share(row["utilisation"]["device"]),
            format_seconds(row["waiting_s"]["median"]),
            format_seconds(row["waiting_s"]["p95"]),
        )
    console = output.console()
    console.print(table)
    console.print()
    console.print(_in_words(figures), soft_wrap=True)
    if gantt is not None:
        console.print(f"drawn in {gantt}", soft_wrap=True)


def _in_words(figures: dict[str, Any]) -> str:
    from tunefleet.report.units import format_seconds

    best = min(figures["policies"], key=lambda row: row["makespan_s"])
    beyond = best["ratio"] - 1
    end = f"ends after {format_seconds(best['makespan_s'])}"
    near = "no policy can end earlier" if beyond < 5e-4 else f"{beyond:.1%} above the least"
    limit = one_line(best["limit"])
    reason = limit if limit.startswith("lane ") else f"the work of {limit}"
    text = f"{best['policy']} {end}, {near}; what limits is {reason}"
    if figures["interference"]:
        text += (
            "\nstages of all jobs ran on a resource at once, each as fast as alone: what they do "
            "to each other is not simulated"
        )
    return text


def _draw(path: str, simulation: Simulation, figures: dict[str, Any]) -> None:
    from tunefleet.report import gantt_page, gantt_png, gantt_svg
    from tunefleet.report.units import format_seconds

    row = figures["policies"][0]
    timeline = _timeline(simulation)
    title = (
        f"{row['policy']}: {_count(figures['jobs'], 'job')} on {_count(figures['hosts'], 'host')} "
        f"and {_count(figures['devices'], 'device')}"
    )
    if path.endswith(".png"):
        content = gantt_png(timeline, title)
    elif path.endswith(".svg"):
        content = gantt_svg(timeline, title).encode()
    else:
        facts = [
            ("makespan", format_seconds(row["makespan_s"])),
            ("lower bound", f"{format_seconds(row['lower_bound_s'])} ({row['limit']})"),
            ("ratio", f"{row['ratio']:.3f}"),
        ]
        content = gantt_page(timeline, title, "simulated", facts).encode(errors="replace")
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", cure="choose another path for --gantt"
        ) from error


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _timeline(simulation: Simulation) -> Timeline:
    from tunefleet.report import Bar, Timeline

    bars = (
        Bar(s.resource_id, s.key.job_id, str(s.kind), s.key.task_id, s.start, s.end, s.attempt,
            s.waited_s)
        for s in simulation.spans
    )  # fmt: skip
    slots = {name: resource.slots for name, resource in simulation.resources.items()}
    return Timeline(
        tuple(bars), tuple(simulation.resources), tuple(simulation.submitted), slots=slots
    )
