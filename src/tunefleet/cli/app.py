"""The Typer application: its commands, and the call that runs one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import typer

from tunefleet.cli import (
    artifacts,
    control,
    costmodel,
    dataset,
    devices,
    inspect,
    place,
    simulate,
    store,
    timeline,
    tune,
)
from tunefleet.cli.outcome import Invocation, guard

app = typer.Typer(
    name="tunefleet",
    help="Autotunes neural networks for the hardware they will run on.",
    epilog="Exit codes: 0 done, 2 fix your input, 3 fix this machine, 4 try again, 5 the device "
    "is not to be trusted, 6 the job cannot be completed, 70 a bug, 130 stopped.",
    add_completion=False,
    # Errors are explained by `outcome.guard`, and plain help starts in half the time.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for command in (
    tune.tune,
    inspect.tasks,
    place.place,
    artifacts.run,
    artifacts.evaluate,
    artifacts.report,
    artifacts.sign,
    inspect.networks,
    inspect.jobs,
    timeline.timeline,
    simulate.simulate,
    control.pause,
    control.resume,
    control.cancel,
    devices.devices,
    inspect.doctor,
    inspect.version,
):
    app.command()(command)
app.add_typer(devices.app)
app.add_typer(dataset.app)
app.add_typer(costmodel.app)
app.add_typer(store.app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code, prints at most one line of error."""

    def call(invocation: Invocation) -> object:
        command = typer.main.get_command(app)
        given = list(arguments) or ["--help"]
        code = command.main(given, prog_name="tunefleet", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
        return code

    _prepare_streams()
    return guard(call)


def _prepare_streams() -> None:
    """Output that a terminal cannot show, or that nobody reads, must not end a command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if not isinstance(sys.stderr, _Notes):
        sys.stderr = _Notes(sys.stderr)


class _Notes:
    """A stream of what is told of a run. That its disk is full, or its reader gone, must not end
    the run: the results go elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
