"""`tunefleet users` and `tunefleet tokens`: those of a service, for its admin and for oneself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tunefleet.cli import options, output
from tunefleet.cli.help import Commands
from tunefleet.cli.remote import client_of

users = Commands(name="users", help="List and change the users of a service.", no_args_is_help=True)
tokens = Commands(name="tokens", help="List, make and revoke tokens.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a user.", show_default=False)]
_OfUser = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="Of another user, as an admin.")
]


@users.command("list")
def list_users(
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List the users."""
    from tunefleet.client.calls import pages

    with client_of(server) as client:
        found = client.done(pages("/v1/users", "users"))
    rows = [(u["name"], "admin" if u["admin"] else "user", _rights(u)) for u in found]
    output.tell(json, {"users": found}, lambda: table(("user", "role", "limits"), rows))


def _rights(user: dict[str, Any]) -> str:
    if user["disabled"]:
        return "disabled"
    return ", ".join(f"{name} {most:g}" for name, most in user["quota"].items() if most is not None)


@users.command("add")
def add_user(
    name: _Name,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything.")] = False,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Most jobs at once.")] = None,
    gib: Annotated[float | None, typer.Option(metavar="G", help="Most GiB of networks.")] = None,
    device_minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Most minutes of devices in a day.")
    ] = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Add a user, and make a token for them."""
    from tunefleet.client.calls import Call, value_of

    quota = {
        "jobs": jobs,
        "stored_bytes": None if gib is None else int(gib * 2**30),
        "device_s": None if device_minutes is None else device_minutes * 60,
    }
    with client_of(server) as client:
        asked = {"name": name, "admin": admin, "quota": quota}
        client.done(value_of(Call("POST", "/v1/users", asked)))
        made = {"user": name, "admin": admin, "label": "first"}
        token = client.done(value_of(Call("POST", "/v1/tokens", made)))
    text = f"the token of {name}, which is not shown again: {token['token']}"
    output.tell(json, token, lambda: typer.echo(text))


@users.command("disable")
def disable_user(
    name: _Name,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Let a user do nothing any more; their jobs go on."""
    _change(server, name, {"disabled": True}, json, "is disabled")


@users.command("enable")
def enable_user(
    name: _Name,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Let a disabled user in again."""
    _change(server, name, {"disabled": False}, json, "may use the service")


def _change(
    server: str | None, name: str, changed: dict[str, Any], json: str | None, told: str
) -> None:
    from tunefleet.client.calls import Call, value_of

    with client_of(server) as client:
        user = client.done(value_of(Call("PATCH", f"/v1/users/{name}", changed)))
    output.tell(json, user, lambda: typer.echo(f"{name} {told}"))


@tokens.command("list")
def list_tokens(
    user: _OfUser = None,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """List one's tokens: their use, and when they expire."""
    from tunefleet.client.calls import Call, value_of

    with client_of(server) as client:
        found = client.done(value_of(Call("GET", "/v1/tokens", params={"user": user or ""})))
    rows = [
        (
            t["id"],
            t["prefix"],
            t["label"],
            "admin" if t["admin"] else "user",
            _day(t["last_used_at"]),
            _day(t["expires_at"]),
        )
        for t in found["tokens"]
    ]
    headings = ("id", "begins", "label", "role", "last used", "expires")
    output.tell(json, found, lambda: table(headings, rows))


@tokens.command("add")
def add_token(
    label: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    user: _OfUser = None,
    admin: Annotated[bool, typer.Option("--admin", help="May do what an admin may.")] = False,
    days: Annotated[
        float, typer.Option(metavar="N", min=0.001, help="How long it is valid.")
    ] = 365,
    server: options.Server = None,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Make a token; its text is shown once."""
    from tunefleet.client.calls import Call, value_of

    asked = {"label": label, "user": user, "admin": admin, "days": days}
    with client_of(server) as client:
        made = client.done(value_of(Call("POST", "/v1/tokens", asked)))
    output.tell(json, made, lambda: typer.echo(made["token"]))


@tokens.command("revoke")
def revoke_token(
    token: Annotated[
        str, typer.Argument(metavar="ID", help="As `tokens list` has it.", show_default=False)
    ],
    user: _OfUser = None,
    server: options.Server = None,
    traceback: options.Traceback = False,
) -> None:
    """End a token."""
    from tunefleet.client.calls import Call, done_by

    with client_of(server) as client:
        call = Call("DELETE", f"/v1/tokens/{token}", params={"user": user or ""})
        client.done(done_by(call))
    typer.echo(f"token {token} is not valid any more")


def _day(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d", time.localtime(at))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    output.console().print(table)
