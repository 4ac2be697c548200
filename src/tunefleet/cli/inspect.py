"""Commands that look and change nothing: tasks, networks, jobs, doctor, version."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.networks import describe_networks
from tunefleet.errors import SetupError

if TYPE_CHECKING:
    from tunefleet.core.job import Job
    from tunefleet.store import Store


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


def jobs(
    home: options.Home = None, json: options.Json = None, traceback: options.Traceback = False
) -> None:
    """List the jobs of this machine, newest first."""
    listing = _jobs(home)
    output.tell(json, {"jobs": listing}, lambda: _show_jobs(listing))


def _show_jobs(listing: list[dict[str, Any]]) -> None:
    if not listing:
        typer.echo("no jobs yet: tunefleet tune zoo:tiny_cnn --trials 64")
        return
    from tunefleet.report.text import jobs_table

    output.console().print(jobs_table(listing))


def _jobs(home: Path | None) -> list[dict[str, Any]]:
    from tunefleet.core.home import default_home
    from tunefleet.store import open_store

    home = home or default_home()
    if not home.is_dir():  # looking must not create a store
        return []
    store = open_store(home)
    try:
        return [_described(job, store, home) for job in store.jobs()]
    finally:
        store.close()


def _described(job: Job, store: Store, home: Path) -> dict[str, Any]:
    """One job; what only a finished one has is None. One that no process works on any more was
    interrupted, whatever it was when its process was killed; one that waits for the other networks
    of its command is delivered."""
    from tunefleet.core.home import Home
    from tunefleet.core.job import JobState
    from tunefleet.core.step import StepKey, StepKind
    from tunefleet.fleet.locks import is_locked
    from tunefleet.report.result import read_result

    summary = store.summary(job.job_id) or {}
    result = read_result(summary, f"job {job.job_id}")
    state = str(job.state)
    locks = Home(home).locks
    if job.state is JobState.RUNNING and not is_locked(locks, job.spec.fingerprint):
        state = "interrupted"
    elif job.state is JobState.RUNNING and store.step(StepKey(job.job_id, StepKind.MEASURE)):
        state = "delivered"
    return {
        "job": job.job_id,
        "state": state,
        "network": job.spec.network.name,
        "target": str(job.spec.target),
        "created_at": job.created_at,
        "elapsed_s": job.elapsed_s,
        "trials": summary.get("trials"),
        "latency_ms": result.tuned_ms.median if result.tuned_ms else None,
        "speedup": result.speedup.median if result.speedup else None,
        "why_no_speedup": result.why_no_speedup,
        "run": result.run or None,
        "artifact": result.artifact,
    }


def doctor(
    threads: options.Threads = None,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Check whether this machine can tune, and what to improve."""
    from tunefleet.devices.doctor import examine
    from tunefleet.hardware.processor import machine_layout

    host, device = parsing.core_numbers(host_cores), parsing.core_numbers(device_cores)
    examination = examine(machine_layout(threads, host, device))
    output.tell(json, examination, lambda: _show_checks(examination))
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
