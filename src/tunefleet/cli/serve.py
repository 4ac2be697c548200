"""`tunefleet serve`: one scheduler of a home, that jobs come to; `watch` shows what it does."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.outcome import Stopped
from tunefleet.errors import InputError
from tunefleet.scheduler.names import PREDICTIVE


def serve(
    policy: options.Policy = PREDICTIVE,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="M", callback=parsing.minutes, help="End after M minutes without a job."
        ),
    ] = None,
    take_all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Take every open job of the home, also those of commands that were interrupted.",
        ),
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the server that runs, after what it measures now.")
    ] = False,
    threads: options.Threads = None,
    host_cores: options.HostCores = None,
    device_cores: options.DeviceCores = None,
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Do the jobs of a home under one scheduler, until it is stopped.

    Commands such as tune give their jobs to it while it runs, and --detach leaves them there. It
    goes on with what an earlier server left. Ctrl-C ends it after what runs; again, at once.
    """
    if stop:
        _stop(home)
        return
    console = output.console(stderr=True)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    from tunefleet.runs.context import BenchmarkContext
    from tunefleet.runs.serving import Server

    context = BenchmarkContext(
        threads=threads,
        host_cores=parsing.core_numbers(host_cores),
        device_cores=parsing.core_numbers(device_cores),
        home=home,
    )
    idle_s = None if idle is None else idle * 60
    server = Server(context, policy=policy, idle_s=idle_s, takes_all=take_all, say=say)

    def end() -> None:
        server.stop()
        say("ends after what runs; Ctrl-C ends it at once")

    with stopped_by_signals(end):
        try:
            server.run()
        except KeyboardInterrupt:
            raise Stopped("stopped; the next server goes on with its jobs") from None
    say("ended")


@contextmanager
def stopped_by_signals(end: Callable[[], None]) -> Iterator[None]:
    """The first signal calls `end`; another one is as for every command."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def first(number: int, frame: FrameType | None) -> None:
        for each, handler in before.items():
            signal.signal(each, handler)
        end()

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(home: Path | None) -> None:
    from tunefleet.core.home import Home, default_home
    from tunefleet.fleet.server_socket import ServerRequest, ask

    root = home or default_home()
    answer = ask(Home(root), ServerRequest("stop"))
    if answer is None:
        raise InputError(f"no server runs for {root}", cure="begin one: tunefleet serve")
    typer.echo(f"process {answer.pid} ends after what runs; its jobs are kept")
