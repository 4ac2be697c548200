"""The Typer application: its commands, and the call that runs one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import typer

from tunefleet.cli import (
    accounts,
    artifacts,
    build,
    control,
    costmodel,
    dataset,
    devices,
    disk,
    forecasts,
    host,
    inspect,
    jobs,
    logs,
    options,
    output,
    place,
    records,
    remote,
    serve,
    simulate,
    store,
    timeline,
    tune,
    watching,
    webhooks,
)
from tunefleet.cli.help import DEVICES, LOOK, RECORDS, SERVICE, TUNE, UPKEEP, Commands
from tunefleet.cli.outcome import Invocation, guard

app = Commands(
    name="tunefleet",
    help="Autotunes neural networks for the hardware they will run on.",
    epilog="Exit codes: 0 done, 2 fix your input, 3 fix this machine, 4 try again, 5 the device "
    "is not to be trusted, 6 the job cannot be completed, 70 a bug, 130 stopped.",
    context_settings={"help_option_names": ["-h", "--help"]},
    # Errors are explained by `outcome.guard`, and plain help starts in half the time.
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, tuple[Callable[..., object], ...]] = {
    TUNE: (
        tune.tune,
        build.build,
        serve.serve,
        host.host,
        watching.watch,
        artifacts.run,
        artifacts.evaluate,
        artifacts.sign,
        place.place,
    ),
    LOOK: (
        inspect.networks,
        inspect.tasks,
        artifacts.report,
        timeline.timeline,
        logs.logs,
        forecasts.forecasts,
        simulate.simulate,
    ),
    RECORDS: (),
    DEVICES: (devices.devices, inspect.doctor),
    SERVICE: (remote.login, remote.submit, remote.fetch, remote.retry),
    UPKEEP: (
        control.pause,
        control.resume,
        control.cancel,
        disk.disk,
        disk.prune,
        inspect.version,
    ),
}
GROUPS = {
    LOOK: (jobs.app,),
    RECORDS: (records.app, dataset.app, costmodel.app),
    DEVICES: (devices.app,),
    SERVICE: (accounts.users, accounts.tokens, webhooks.webhooks),
    UPKEEP: (store.app,),
}


@app.callback()
def options_of_all(version: options.Version = False) -> None:
    """Autotunes neural networks for the hardware they will run on."""


for section, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=section)(command)
    for group in GROUPS.get(section, ()):
        app.add_typer(group, rich_help_panel=section)


@cache
def _command() -> Any:
    """A tenth of a second; a process may run several command lines."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code, prints at most one line of error."""

    def call(invocation: Invocation) -> object:
        command = _command()
        given = list(arguments) or ["--help"]
        code = command.main(given, prog_name="tunefleet", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
        return code

    output.prepare_streams()
    return guard(call)
