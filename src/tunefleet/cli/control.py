"""Commands that tell a running job what its user wants: pause, resume, cancel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefleet.cli import options, output
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.core.job import Job
    from tunefleet.fleet.controls import ControlRequest

JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job id that `jobs` lists, or its first 6 characters or more.",
        show_default=False,
    ),
]


def pause(
    job: JobName,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Pause a job: what runs finishes, nothing more starts."""
    from tunefleet.fleet.controls import ControlRequest

    paused = _ask(job, home, ControlRequest.PAUSE)
    _tell(json, paused, "paused", f"is paused; tunefleet resume {paused.job_id[:8]} continues it")


def resume(
    job: JobName,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Continue a paused job."""
    from tunefleet.fleet.controls import ControlRequest

    _tell(json, _ask(job, home, ControlRequest.RUN), "running", "goes on")


def cancel(
    job: JobName,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """End a job now and keep its records."""
    from tunefleet.fleet.controls import ControlRequest

    cancelled = _ask(job, home, ControlRequest.CANCEL)
    _tell(json, cancelled, "cancelled", "is cancelled; its records are kept")


def _tell(json: str | None, job: Job, state: str, text: str) -> None:
    value = {"job": job.job_id, "network": job.spec.network.name, "state": state}
    output.tell(json, value, lambda: typer.echo(f"{_named(job)} {text}"))


def _ask(name: str, home: Path | None, request: ControlRequest) -> Job:
    from tunefleet.core.home import default_home
    from tunefleet.core.job import JobState
    from tunefleet.fleet.controls import controls_of
    from tunefleet.runs.timeline import find_job
    from tunefleet.store import open_store

    home = home or default_home()
    if not home.is_dir():  # looking must not create a store
        raise InputError(f"no jobs in {home}", cure="choose another home")
    store = open_store(home)
    try:
        job = find_job(store, name)
    finally:
        store.close()
    if job.state is not JobState.RUNNING:
        raise InputError(f"{_named(job)} is {job.state}", cure="nothing of it runs")
    controls_of(home).ask(job.job_id, request)
    return job


def _named(job: Job) -> str:
    return f"job {job.job_id[:8]} ({job.spec.network.name})"
