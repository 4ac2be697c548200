"""Commands for a service elsewhere: sign in, submit, fetch, ask again."""

from __future__ import annotations

import json as text_of
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.outcome import Stopped
from tunefleet.errors import InputError, JobError, SetupError

if TYPE_CHECKING:
    from tunefleet.client import Client
    from tunefleet.core.events import Event

_CURE = "sign in: tunefleet login URL"


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of the service.", show_default=False)],
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read the token from a file, - for standard input."),
    ] = None,
    traceback: options.Traceback = False,
) -> None:
    """Sign in at a service; its token is kept for this user alone.

    Commands with --server use it, and submit and fetch without one.
    """
    if token_file is None:
        token = str(typer.prompt("token", hide_input=True))
    elif str(token_file) == "-":
        token = sys.stdin.readline()
    else:
        token = _read(token_file)
    place = url.rstrip("/")
    from tunefleet.client import connect
    from tunefleet.client.calls import me

    with connect(place, token.strip()) as client:
        user = client.done(me())
    kept = _servers()
    kept["tokens"] = {**kept.get("tokens", {}), place: token.strip()}
    _keep({**kept, "latest": place})
    typer.echo(f"signed in at {place} as {user['name']}")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InputError(f"{file} cannot be read: {error}", cure="name the token's file") from error


def submit(
    network: options.Network,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the service's devices.")
    ] = None,
    target: Annotated[str, typer.Option(metavar="TARGET", help="As tune --target.")] = "cpu",
    threads: options.Threads = None,
    shape: options.Shape = None,
    dim: options.Dim = None,
    constant: options.Constant = None,
    precision: options.Precision = "float32",
    calibrate: options.Calibrate = None,
    inputs: options.Inputs = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", callback=parsing.positive, help="As tune --trials.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", callback=parsing.minutes, help="As tune --minutes."),
    ] = None,
    target_latency_ms: Annotated[
        float | None,
        typer.Option(metavar="L", callback=parsing.positive, help="Agree on at most L ms."),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(
            metavar="X", callback=parsing.positive, help="Agree on X times its framework's speed."
        ),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(metavar="M", callback=parsing.minutes, help="Deliver M minutes from now."),
    ] = None,
    known: Annotated[
        bool, typer.Option("--known", help="Build of what is known, without a search.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Watch it, and print what tune prints.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="As --wait; fail unless what was agreed is met.")
    ] = False,
    server: options.Server = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
    traceback: options.Traceback = False,
) -> None:
    """Give a network to a service, by what was agreed.

    A file is sent in parts, and goes on after a cut; one that the service has is not sent again.
    """
    if check and target_latency_ms is None and speedup is None:
        raise InputError(
            "--check needs what is agreed", cure="give --target-latency-ms or --speedup"
        )
    asked: dict[str, Any] = {
        "kind": "build" if known else "tune",
        "device": device,
        "target": target,
        "threads": threads,
        **of_network(shape, dim, constant),
        "precision": precision,
        "calibrate": calibrate,
        "inputs": inputs or [],
        "budget": {"trials": trials, "minutes": minutes},
        "agreement": {"latency_ms": target_latency_ms, "speedup": speedup},
        "deadline": None if within is None else time.time() + 60 * within,
    }
    with client_of(server) as client:
        view = _submitted(client, network, asked, quiet=quiet)
        if wait or check:
            _waited(client, view, json, quiet=quiet)
            if check:
                _check(client.job(view["id"]))
            return
        name = view["id"][:8]
        text = f"job {name} ({view['network']}) is {view['state']}; tunefleet watch {name} shows it"
        if view.get("queue"):
            from tunefleet.report.jobs_text import queue_text

            text += f"\n{queue_text(view['queue'])}"
        output.tell(json, view, lambda: typer.echo(text))


def _submitted(
    client: Client, network: str, asked: dict[str, Any], *, quiet: bool
) -> dict[str, Any]:
    """The submitted job; a terminal shows the progress of uploads."""
    if quiet:
        return client.submit(network, **asked)
    with output.console(stderr=True).status("submitting") as status:
        client.notify = status.update
        return client.submit(network, **asked)


def of_network(
    shape: list[str] | None, dim: list[str] | None, constant: list[str] | None
) -> dict[str, Any]:
    """Shapes and constants as the API takes them."""
    return {
        "shapes": {name: [list(s) for s in many] for name, many in parsing.by_input(shape).items()},
        "dims": parsing.by_dimension(dim),
        "constants": parsing.by_constant(constant),
    }


def check_unused(server: str, **given: object) -> None:
    """Raises InputError for options that a service does not take."""
    for name, value in given.items():
        if value:
            raise InputError(
                f"{server} takes no --{name.replace('_', '-')}", cure="leave it out, or --server"
            )


def _waited(client: Client, view: dict[str, Any], json: str | None, *, quiet: bool) -> None:
    ended = follow(client, [view["id"]], quiet=quiet)[view["id"]]
    if ended.error:
        from tunefleet.errors import error_named

        raise error_named(ended.kind)(ended.error)
    from tunefleet.cli import summary
    from tunefleet.report.result import read_result

    done = client.job(view["id"])
    value = done["result"] or {}
    name = done["artifact"]

    def show() -> None:
        summary.show(
            read_result({**value, "artifact": None, "report": None}, name or "it"), tasks=20
        )
        if name:
            typer.echo(f"artifact  {name}: tunefleet fetch {name[:8]}")

    output.tell(json, [value], show)


def _check(view: dict[str, Any]) -> None:
    """Raises JobError unless what was agreed is met."""
    if view["outcome"] not in ("met", "met from records"):
        agreed = ((view["result"] or {}).get("agreement") or {}).get("text") or view["outcome"]
        raise JobError(
            f"{view['network']}: {agreed}", cure="give it more minutes, or agree on less"
        )


def follow(client: Client, names: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    """Show jobs as they go on until all have ended; how each ended. Raises Stopped."""
    from tunefleet.cli.live import watch
    from tunefleet.core.events import JobEnded

    views = [client.job(name) for name in names]
    ended: dict[str, Any] = {}
    rows = [view["network"] for view in views]
    try:
        with watch(rows, output.console(stderr=True), quiet=quiet) as shown:
            for index, view in enumerate(views):
                observe = shown.observer(index)
                for value in client.events(view["id"]):
                    event = _event(value)
                    if event is not None:
                        observe(event)
                    if isinstance(event, JobEnded):
                        ended[names[index]] = event
                ended.setdefault(names[index], JobEnded())
    except KeyboardInterrupt:
        raise Stopped("not watched any more; the job goes on") from None
    return ended


def _event(value: dict[str, Any]) -> Event | None:
    from tunefleet.store.event_codec import SCHEMA, event_of

    fields = {k: v for k, v in value.items() if k not in ("seq", "job", "at", "event")}
    return event_of(str(value["event"]), SCHEMA, fields)


def fetch(
    artifact: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Of an artifact, or of the job that made it.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Its folder is made below this one.")
    ] = Path(),
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Fetch an artifact from a service.

    It is compared with its digests. What was fetched before a cut is not fetched again.
    """
    with client_of(server) as client:
        name = artifact
        with suppress(InputError):
            name = client.job(artifact)["artifact"] or artifact
        folder = client.fetch(name, out)
    output.tell(json, {"artifact": str(folder)}, lambda: typer.echo(str(folder)))


def retry(
    job: Annotated[str, typer.Argument(metavar="JOB", help="An id.", show_default=False)],
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Ask a service again for a job that has ended.

    It begins with what was measured.
    """
    with client_of(server) as client:
        view = client.retry(job)
    output.tell(json, view, lambda: typer.echo(f"job {view['id'][:8]} ({view['network']})"))


def watch_remote(
    server: str, names: Sequence[str], after: int | None, *, quiet: bool, json: bool
) -> None:
    """`watch` of a service's jobs."""
    with client_of(server) as client:
        if not json:
            follow(client, names, quiet=quiet)
            for name in names:
                typer.echo(f"{name}: {client.job(name)['state']}")
            return
        for name in names:
            for value in client.events(name, after or 0):
                sys.stdout.write(text_of.dumps(value) + "\n")
                sys.stdout.flush()


def ask_remote(server: str, name: str, verb: str, json: str | None) -> None:
    """`pause`, `resume` or `cancel` of a service's job."""
    with client_of(server) as client:
        view = {"pause": client.pause, "resume": client.resume, "cancel": client.cancel}[verb](name)
    text = f"job {view['id'][:8]} ({view['network']}) is {view['state']}"
    output.tell(json, view, lambda: typer.echo(text))


def list_remote(server: str, states: Sequence[str], limit: int, json: str | None) -> None:
    """`jobs` of a service."""
    with client_of(server) as client:
        found = [view for state in states or ("",) for view in client.jobs(limit, state)]
    chosen = sorted(found, key=lambda view: view["created_at"], reverse=True)[:limit]

    def show() -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("job", "state", "network", "trials", "latency", "reason"):
            table.add_column(heading, overflow="fold")
        for view in chosen:
            latency = "" if view["latency_ms"] is None else f"{view['latency_ms']:.3g} ms"
            told = [(view["reason"] or {}).get("text"), view["outcome"], _forecast_of(view)]
            reason = "; ".join(text for text in told if text)
            table.add_row(
                view["id"][:8], view["state"], view["network"], str(view["trials"]), latency, reason
            )
        output.console().print(table)

    output.tell(json, {"jobs": chosen}, show)


def _forecast_of(view: dict[str, Any]) -> str:
    from tunefleet.report.jobs_text import forecast_text

    of = view.get("forecast")
    if not of:
        return ""
    low_s, median_s, high_s = (of[name] / 1e3 for name in ("low_ms", "median_ms", "high_ms"))
    return forecast_text(low_s, median_s, high_s, of["ends_at"], of["probability"])


def client_of(server: str | None) -> Client:
    """A client of a service by its URL, or of that where the user signed in last. Raises InputError
    where nobody has signed in."""
    kept = _servers()
    place = (server or str(kept.get("latest") or "")).rstrip("/")
    if not place:
        raise InputError("no service is named", cure=_CURE)
    token = kept.get("tokens", {}).get(place)
    if token is None:
        raise InputError(f"nobody has signed in at {place}", cure=f"tunefleet login {place}")
    from tunefleet.client import connect

    return connect(place, str(token))


def _place() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root, "tunefleet", "servers.json")


def _servers() -> dict[str, Any]:
    place = _place()
    try:
        value = text_of.loads(place.read_text(encoding="utf-8"))
        assert isinstance(value, dict)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AssertionError) as error:
        raise SetupError(f"{place} cannot be read: {error}", cure="remove it, sign in") from error
    return value


def _keep(value: dict[str, Any]) -> None:
    place = _place()
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = place.with_name(f"{place.name}.{os.getpid()}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text_of.dumps(value, indent=1).encode())
        draft.replace(place)
    except OSError as error:
        raise SetupError(
            f"{place} cannot be written: {error.strerror}", cure="make room"
        ) from error
