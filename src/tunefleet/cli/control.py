"""Commands that tell a running job what its user wants: pause, resume, cancel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tunefleet.cli import options, output
from tunefleet.errors import InputError

if TYPE_CHECKING:
    from tunefleet.core.coordination import ControlRequest
    from tunefleet.core.job import Job

_ENDED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "been cancelled",
    "expired": "expired",
}

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
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Pause a job: what runs finishes, nothing more starts."""
    if server:
        from tunefleet.cli.remote import ask_remote

        ask_remote(server, job, "pause", json)
        return
    from tunefleet.core.coordination import ControlRequest

    paused = _ask(_find(job, home), home, ControlRequest.PAUSE)
    _tell(json, paused, "paused", f"is paused; tunefleet resume {paused.job_id[:8]} continues it")


def resume(
    job: JobName,
    home: options.Home = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Continue a paused job.

    One that was left to a server begins the next one where none runs.
    """
    if server:
        from tunefleet.cli.remote import ask_remote

        ask_remote(server, job, "resume", json)
        return
    from tunefleet.core.coordination import ControlRequest

    found = _ask(_find(job, home), home, ControlRequest.RUN)
    if found.spec.terms.served:
        from tunefleet.runs.submitting import take

        take(_place(home), [found.job_id])
    _tell(json, found, "running", "goes on")


def cancel(
    job: JobName,
    home: options.Home = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """End a job now and keep its records."""
    if server:
        from tunefleet.cli.remote import ask_remote

        ask_remote(server, job, "cancel", json)
        return
    from tunefleet.core.coordination import ControlRequest

    found = _find(job, home)
    from tunefleet.runs.jobs import CANCELLING, cancel_interrupted

    if cancel_interrupted(_place(home), found):
        _tell(json, found, "cancelled", "is cancelled; its records are kept")
    else:
        _ask(found, home, ControlRequest.CANCEL)
        _tell(json, found, CANCELLING, "is being cancelled; its records are kept")


def _tell(json: str | None, job: Job, state: str, text: str) -> None:
    value = {"job": job.job_id, "network": job.spec.network.name, "state": state}
    output.tell(json, value, lambda: typer.echo(f"{_named(job)} {text}"))


def _place(home: Path | None) -> Path:
    from tunefleet.core.home import default_home

    return home or default_home()


def _find(name: str, home: Path | None) -> Job:
    """The job of that name, which has not ended."""
    from tunefleet.core.job import JobState
    from tunefleet.runs.timeline import find_job
    from tunefleet.store import open_store

    place = _place(home)
    if not place.is_dir():  # looking must not create a store
        raise InputError(f"no jobs in {place}", cure="choose another home")
    store = open_store(place)
    try:
        job = find_job(store, name)
    finally:
        store.close()
    if job.state is not JobState.RUNNING:
        raise InputError(f"{_named(job)} has {_ENDED[str(job.state)]}", cure="nothing of it runs")
    return job


def _ask(job: Job, home: Path | None, request: ControlRequest) -> Job:
    from tunefleet.store import open_store

    store = open_store(_place(home))
    try:
        store.coordination.ask(job.job_id, request)
    finally:
        store.close()
    return job


def _named(job: Job) -> str:
    return f"job {job.job_id[:8]} ({job.spec.network.name})"
