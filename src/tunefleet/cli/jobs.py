"""`tunefleet jobs`: the jobs of a home, and removing them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.confirming import confirmed
from tunefleet.cli.help import Commands
from tunefleet.errors import InputError

#: As `runs.jobs.STATES`, which is not imported for a help page.
STATES = ("running", "paused", "cancelling", "succeeded", "failed", "cancelled", "expired")

app = Commands(name="jobs", help="List the jobs of this home, newest first.")


def _states(value: list[str] | None) -> list[str] | None:
    for name in value or ():
        parsing.one_of(STATES, name, "state")
    return value


@app.callback(invoke_without_command=True)
def jobs(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            callback=_states,
            help=f"Only jobs in this state; repeat it for more: {', '.join(STATES)}.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", callback=parsing.positive, help="Only the newest N.")
    ] = 50,
    home: options.Home = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List the jobs of this home, newest first.

    A job is paused where its user wants that, or where no process works on it any more.
    """
    if context.invoked_subcommand is not None:
        return
    if server:
        from tunefleet.cli.remote import list_remote

        list_remote(server, state or (), limit, json)
        return
    from tunefleet.core.home import default_home
    from tunefleet.runs.jobs import list_jobs

    listing = list_jobs(home or default_home(), state or (), limit)
    output.tell(json, {"jobs": listing}, lambda: _show(listing, limit, filtered=bool(state)))


def _show(listing: list[dict[str, Any]], limit: int, *, filtered: bool) -> None:
    if not listing:
        some = "no such jobs" if filtered else "no jobs yet: tunefleet tune zoo:tiny_cnn"
        typer.echo(some)
        return
    from tunefleet.report.jobs_text import job_notes, jobs_table

    console = output.console()
    console.print(jobs_table(listing))
    more = [f"the newest {limit}; --limit N lists more"] if len(listing) == limit else []
    for note in [*job_notes(listing), *more]:
        console.print(note, style="dim", soft_wrap=True, markup=False)


@app.command("rm")
def remove(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB",
            help="Job ids that `jobs` lists, or their first 6 characters or more.",
            show_default=False,
        ),
    ],
    yes: options.Yes = False,
    home: options.Home = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Remove jobs with their records; artifacts stay.

    Later jobs do not reuse what is removed. Running jobs are refused.
    """
    from tunefleet.core.home import default_home
    from tunefleet.runs.jobs import remove_jobs, trials_of

    place = home or (context.obj.home if context.obj else None) or default_home()
    if not place.is_dir():
        raise InputError(f"no jobs in {place}", cure="name another home")
    trials = trials_of(place, names)
    many = f"{len(names)} job{'' if len(names) == 1 else 's'}"
    confirmed(f"Remove {many} with {trials} trials, which later jobs would reuse?", yes=yes)
    removed = remove_jobs(place, names)
    value = {"removed": [job.job_id for job in removed], "trials": trials}
    lines = "\n".join(f"job {j.job_id[:8]} ({j.spec.network.name}) is removed" for j in removed)
    output.tell(json, value, lambda: typer.echo(lines))
