"""`tunefleet serve`: one scheduler of a home, that jobs come to; `watch` shows what it does."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.outcome import Stopped
from tunefleet.core.settings import LEARN_EVERY
from tunefleet.errors import InputError
from tunefleet.scheduler.names import PREDICTIVE
from tunefleet.system.packages import require

if TYPE_CHECKING:
    from tunefleet.runs.serving import Server
    from tunefleet.service.app import ServiceSettings


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
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Answer over HTTP too, such as at 127.0.0.1:8080."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate for HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Believe what this proxy says of who calls."),
    ] = None,
    admin: Annotated[
        str, typer.Option(metavar="NAME", help="The first user, made where there is none.")
    ] = "admin",
    max_upload_gib: Annotated[
        float, typer.Option(metavar="GIB", min=0.001, help="The most of one uploaded network.")
    ] = 4.0,
    learn_every: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Learn from N new records where nothing runs; 0 is never."
        ),
    ] = LEARN_EVERY,
    private_webhooks: Annotated[
        bool,
        typer.Option("--private-webhooks", help="Let webhooks name private addresses, and http."),
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
    server = Server(
        context,
        policy=policy,
        idle_s=idle_s,
        takes_all=take_all,
        learn_every=learn_every,
        say=say,
    )

    def end() -> None:
        server.stop()
        say("ends after what runs; Ctrl-C ends it at once")

    over_http: AbstractContextManager[None] = nullcontext()
    if http is not None:
        most_bytes = int(max_upload_gib * 2**30)
        tls = (tls_certificate, tls_key)
        require("--http", ("fastapi", "uvicorn"), "pip install tunefleet[service]")
        from tunefleet.service.app import ServiceSettings

        settings = ServiceSettings(most_bytes, private_webhooks)
        over_http = _over_http(server, context.home, http, tls, proxy or (), settings, admin, say)
    with stopped_by_signals(end):
        try:
            with over_http:
                server.run()
        except KeyboardInterrupt:
            raise Stopped("stopped; the next server goes on with its jobs") from None
    say("ended")


@contextmanager
def _over_http(
    server: Server,
    home: Path,
    address: str,
    tls: tuple[Path | None, Path | None],
    proxies: Sequence[str],
    settings: ServiceSettings,
    admin: str,
    say: Callable[[str], None],
) -> Iterator[None]:
    """Answer over HTTP within the block."""
    from tunefleet.service.running import HttpService, Listening
    from tunefleet.service.tokens import first_token
    from tunefleet.store import open_store

    if (tls[0] is None) != (tls[1] is None):
        raise InputError("TLS needs two files", cure="give --tls-certificate and --tls-key")
    listening = replace(
        Listening.parse(address), certificate=tls[0], key=tls[1], proxies=tuple(proxies)
    )
    with closing(open_store(home)) as store:
        token = first_token(store.accounts, admin, time.time())
    with HttpService(home, listening, settings, server.look) as service:
        say(f"answering at {service.url}")
        if not listening.is_local and listening.certificate is None:
            say("warning: others can read what is sent: give --tls-certificate and --tls-key")
        if token is not None:
            say(f"the token of {admin}, who may do everything; it is not shown again: {token}")
        yield


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
