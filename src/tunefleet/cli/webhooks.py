"""`tunefleet webhooks`: where a service tells what happens to one's jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.accounts import table
from tunefleet.cli.help import Commands
from tunefleet.cli.remote import client_of
from tunefleet.errors import JobError

webhooks = Commands(
    name="webhooks", help="List, add, try and remove webhooks.", no_args_is_help=True
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
    """List one's webhooks, with what came of their last deliveries."""
    found = _asked(server, "GET", "")
    rows = [
        (w["id"], w["url"], ", ".join(w["events"]) or "all", w["disabled"] or w["last"])
        for w in found["webhooks"]
    ]
    output.tell(json, found, lambda: table(("id", "url", "events", "last"), rows))


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
    """Be told of one's jobs; prints the secret that signs what is sent."""
    made = _asked(server, "POST", "", {"url": url, "events": event or []})
    text = f"webhook {made['id']}; its secret, which is not shown again: {made['secret']}"
    output.tell(json, made, lambda: typer.echo(text))


@webhooks.command("test")
def ping_webhook(
    webhook: _Id,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Send a ping now; fails where it is not taken."""
    sent = _asked(server, "POST", f"/{webhook}/test")
    if not sent["delivered"]:
        raise JobError(f"the ping was not taken: {sent['detail']}", cure="see what answers there")
    output.tell(json, sent, lambda: typer.echo(f"taken: {sent['detail']}"))


@webhooks.command("enable")
def enable_webhook(
    webhook: _Id,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Let one that was disabled be told again, from now on."""
    changed = _asked(server, "PATCH", f"/{webhook}", {"disabled": False})
    output.tell(json, changed, lambda: typer.echo(f"webhook {webhook} is told what happens"))


@webhooks.command("remove")
def remove_webhook(
    webhook: _Id,
    server: options.Server = None,
    traceback: options.Traceback = False,
) -> None:
    """Be told nothing more."""
    from tunefleet.client.calls import Call, done_by

    with client_of(server) as client:
        client.done(done_by(Call("DELETE", f"/v1/webhooks/{webhook}")))
    typer.echo(f"webhook {webhook} is removed")


def _asked(server: str | None, method: str, path: str, value: Any = None) -> dict[str, Any]:
    from tunefleet.client.calls import Call, value_of

    with client_of(server) as client:
        return client.done(value_of(Call(method, f"/v1/webhooks{path}", value)))
