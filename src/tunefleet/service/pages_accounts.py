"""Pages on tokens, and on users for their admin."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response

from tunefleet.service.caller import ByAdmin, ByUser
from tunefleet.service.pages import page_router, show
from tunefleet.service.routes_accounts import list_shares, list_tokens, list_users

router = page_router()

_USERS = 50
_Name = Annotated[str, Query(max_length=64)]


@router.get("/tokens")
def tokens_page(request: Request, caller: ByUser, user: _Name = "") -> Response:
    """One's tokens and the readers of one's records, or for an admin the tokens of another user."""
    return show(
        request,
        caller,
        "tokens.html",
        owner=user or caller.user.name,
        tokens=list_tokens(request, caller, user).tokens,
        readers=list_shares(request, caller).readers,
    )


@router.get("/users")
def users_page(request: Request, caller: ByAdmin, cursor: _Name = "") -> Response:
    """All users."""
    page = list_users(request, caller, cursor, _USERS)
    return show(request, caller, "users.html", users=page.users, next=page.next)
