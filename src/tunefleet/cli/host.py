"""`tunefleet host`: this machine runs stages for the jobs of another home."""

from __future__ import annotations

import socket
from contextlib import closing
from threading import Event
from typing import Annotated

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.outcome import Stopped
from tunefleet.cli.serve import stopped_by_signals
from tunefleet.errors import InputError


def host(
    store: Annotated[
        str, typer.Option(metavar="URL", help="The store of the jobs: sqlite:///PATH.")
    ],
    blobs: Annotated[
        str, typer.Option(metavar="URL", help="The objects of that home: file:///PATH/objects.")
    ] = "",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of this host; that of the machine by default."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure on this machine's processor too.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End the host of this name.")] = False,
    threads: options.Threads = None,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Select, build and learn for the jobs of another home.

    It does so until it is stopped, also for jobs that run already. What it runs when it ends is run
    elsewhere.
    """
    chosen = name or socket.gethostname()
    if stop:
        _stop(store, chosen)
        return
    if not blobs:
        raise InputError("a host needs the objects of the jobs", cure="give --blobs URL")
    console = output.console(stderr=True)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    from tunefleet.core.home import Home
    from tunefleet.fleet.host import run_host
    from tunefleet.runs.context import BenchmarkContext

    context = BenchmarkContext(
        threads=threads,
        host_cores=parsing.core_numbers(host_cores),
        device_cores=parsing.core_numbers(device_cores),
        home=home,
    )
    ended = Event()

    def begins() -> None:
        say(f"host {chosen} works for {store}")

    def end() -> None:
        ended.set()
        say("ends; Ctrl-C ends it at once")

    with stopped_by_signals(end):
        try:
            run_host(
                store,
                blobs,
                chosen,
                Home(context.home),
                context.layout,
                measures=measure,
                begun=begins,
                ended=ended,
            )
        except KeyboardInterrupt:
            raise Stopped("stopped; its stages run elsewhere") from None
    say("ended")


def _stop(store: str, name: str) -> None:
    from tunefleet.store import open_store

    with closing(open_store(store)) as opened:
        if not opened.dispatch.dismiss(name):
            raise InputError(f"no host {name} is there", cure="give its --name")
    typer.echo(f"host {name} ends")
