"""`tunefleet webhooks`: URLs that receive the events of one's jobs from a service."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.accounts import table
from tunefleet.cli.help import Commands
from tunefleet.cli.remote import client_of
from tunefleet.errors import JobError

webhooks = Commands(
    name="webhooks", help="Add, list, test and remove webhooks.", no_args_is_help=True
)

_Id = Annotated[
    str, typer.Argument(metavar="ID", help="As `webhooks list` has it.", show_default=False)
]


@webhooks.command("list")
def list_webhooks(
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List one's webhooks, each with the result of its last delivery."""
    with client_of(server) as client:
        found = client.webhooks()
    rows = [(w["id"], w["url"], ", ".join(w["events"]) or "all", _last(w)) for w in found]
    headings = ("id", "url", "events", "last")
    output.tell(json, {"webhooks": found}, lambda: table(headings, rows))


def _last(webhook: dict[str, Any]) -> str:
    if webhook["disabled"]:
        return f"disabled: {webhook['disabled']}"
    retry = f"; retry at {_moment(webhook['next_at'])}" if webhook["next_at"] else ""
    return f"{webhook['last']}{retry}"


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@webhooks.command("add")
def add_webhook(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of https.", show_default=False)],
    event: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Such as job.failed; repeat it.")
    ] = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Add a webhook; prints the secret that signs its messages."""
    with client_of(server) as client:
        made = client.add_webhook(url, event or [])
    text = f"webhook {made['id']}; its secret, which is not shown again: {made['secret']}"
    output.tell(json, made, lambda: typer.echo(text))


@webhooks.command("test")
def ping_webhook(
    webhook: _Id,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Send a ping now; fails unless it is acknowledged."""
    with client_of(server) as client:
        sent = client.ping_webhook(webhook)
    if not sent["delivered"]:
        raise JobError(
            f"the ping was not acknowledged: {sent['detail']}", cure="see what answers at the URL"
        )
    output.tell(json, sent, lambda: typer.echo(f"acknowledged: {sent['detail']}"))


@webhooks.command("deliveries")
def list_deliveries(
    webhook: _Id,
    limit: Annotated[
        int, typer.Option(metavar="N", callback=parsing.positive, help="At most so many.")
    ] = 50,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List past deliveries, the newest event first."""
    with client_of(server) as client:
        found = client.deliveries(webhook, limit)
    rows = [
        (
            _moment(d["last_at"]),
            d["event"],
            d["job"][:8],
            _result(d),
            str(d["attempts"]),
        )
        for d in found
    ]
    headings = ("time", "event", "job", "result", "attempts")
    output.tell(json, {"deliveries": found}, lambda: table(headings, rows))


def _result(delivery: dict[str, Any]) -> str:
    return delivery["error"] or f"HTTP {delivery['status']}"


@webhooks.command("rotate")
def rotate_secret(
    webhook: _Id,
    overlap_hours: Annotated[
        float, typer.Option(metavar="H", min=0, max=168, help="How long both secrets sign.")
    ] = 24,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Replace the secret; prints the new one."""
    with client_of(server) as client:
        rotated = client.rotate_webhook(webhook, overlap_hours)
    text = f"the new secret, which is not shown again: {rotated['secret']}"
    output.tell(json, rotated, lambda: typer.echo(text))


@webhooks.command("enable")
def enable_webhook(
    webhook: _Id,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Enable a disabled webhook, for the events from now on."""
    with client_of(server) as client:
        changed = client.enable_webhook(webhook)
    output.tell(json, changed, lambda: typer.echo(f"webhook {webhook} is enabled"))


@webhooks.command("remove")
def remove_webhook(
    webhook: _Id,
    server: options.Server = None,
    traceback: options.Traceback = False,
) -> None:
    """Remove a webhook and the list of its deliveries."""
    with client_of(server) as client:
        client.remove_webhook(webhook)
    typer.echo(f"webhook {webhook} is removed")
