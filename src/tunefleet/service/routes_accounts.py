"""Users, their tokens, sessions of browsers, and sharing of records."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from tunefleet.service.caller import COOKIE, ByAdmin, ByUser, Caller, check_same_site
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.tokens import check_name, new_token, valid_token
from tunefleet.service.values_accounts import (
    AskedQuota,
    AskedSession,
    AskedShare,
    AskedToken,
    AskedUser,
    ChangedUser,
    ShareList,
    TokenList,
    TokenView,
    UserPage,
    UserView,
)
from tunefleet.store import EVERYONE, AccessToken, Quota, Store, User

router = APIRouter(prefix="/v1", tags=["accounts"])

_DAY_S = 86_400.0
#: How long a browser stays signed in.
_SESSION_S = 12 * 3600.0
_Name = Annotated[str, Path(min_length=1, max_length=64)]
#: Of a token: the beginning of its digest, which is not the beginning of its text.
_TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.get("/me")
def get_me(caller: ByUser) -> UserView:
    """The user of the token."""
    return _user_view(caller.user)


@router.get("/users")
def list_users(
    request: Request,
    caller: ByAdmin,
    cursor: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> UserPage:
    """All users, by their names."""
    found = request.app.state.store.accounts.users(cursor, limit)
    more = found[-1].name if len(found) == limit else None
    return UserPage(users=[_user_view(user) for user in found], next=more)


@router.post("/users", status_code=201)
def add_user(asked: AskedUser, request: Request, caller: ByAdmin) -> UserView:
    """Add a user."""
    accounts = request.app.state.store.accounts
    if accounts.user(check_name(asked.name)) is not None:
        raise Refused(409, f"there is a user {asked.name}", cure="choose another name")
    user = User(
        asked.name,
        admin=asked.admin,
        created_at=time.time(),
        quota=Quota(**asked.quota.model_dump()),
    )
    accounts.put_user(user)
    request.app.state.audit.keep(caller.user.name, "add user", name=user.name, admin=user.admin)
    return _user_view(user)


@router.patch("/users/{name}")
def change_user(name: _Name, changed: ChangedUser, request: Request, caller: ByAdmin) -> UserView:
    """Change a user's rights and quota. A disabled user has no access."""
    user = _known_user(request.app.state.store, name)
    if changed.admin is not None:
        user = replace(user, admin=changed.admin)
    if changed.disabled is not None:
        user = replace(user, disabled=changed.disabled)
    if changed.quota is not None:
        user = replace(user, quota=Quota(**changed.quota.model_dump()))
    if name == caller.user.name and (user.disabled or not user.admin):
        raise Refused(409, "you would lock yourself out", cure="let another admin do it")
    request.app.state.store.accounts.put_user(user)
    request.app.state.tokens.forget()
    what = changed.model_dump(exclude_none=True)
    request.app.state.audit.keep(caller.user.name, "change user", name=name, **{"set": what})
    return _user_view(user)


@router.get("/tokens")
def list_tokens(
    request: Request, caller: ByUser, user: Annotated[str, Query(max_length=64)] = ""
) -> TokenList:
    """One's tokens, or for an admin those of another user."""
    owner = _owner(caller, user)
    tokens = request.app.state.store.accounts.tokens(owner)
    return TokenList(tokens=[_token_view(token) for token in tokens])


@router.post("/tokens", status_code=201)
def add_token(asked: AskedToken, request: Request, caller: ByUser) -> TokenView:
    """Create a token; its text is given once. A token has no more rights than the one it is
    created with."""
    owner = _known_user(request.app.state.store, _owner(caller, asked.user or ""))
    if asked.admin and not (caller.is_admin and owner.admin):
        raise Refused(403, "this token may not make one of an admin", cure="ask an admin")
    text, token = new_token(
        owner.name,
        time.time(),
        label=asked.label,
        admin=asked.admin,
        lives_s=None if asked.days is None else asked.days * _DAY_S,
    )
    request.app.state.store.accounts.put_token(token)
    request.app.state.audit.keep(
        caller.user.name, "add token", of=owner.name, prefix=token.prefix, admin=token.admin
    )
    return _token_view(token).model_copy(update={"token": text})


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(
    token_id: _TokenId,
    request: Request,
    caller: ByUser,
    user: Annotated[str, Query(max_length=64)] = "",
) -> None:
    """Revoke a token."""
    accounts, owner = request.app.state.store.accounts, _owner(caller, user)
    found = [token for token in accounts.tokens(owner) if token.digest.startswith(token_id)]
    if not found:
        raise not_found(f"token {token_id}")
    accounts.remove_token(found[0].digest)
    request.app.state.tokens.forget()
    request.app.state.audit.keep(caller.user.name, "revoke token", of=owner, prefix=found[0].prefix)


@router.get("/shares")
def list_shares(request: Request, caller: ByUser) -> ShareList:
    """The readers of one's records."""
    return ShareList(readers=request.app.state.store.accounts.readers(caller.user.name))


@router.post("/shares", status_code=201)
def share_records(asked: AskedShare, request: Request, caller: ByUser) -> ShareList:
    """Let the searches of a user, or of all (`*`), start from one's records. Readers see
    programs and their latencies, never networks or artifacts."""
    if asked.reader != EVERYONE:
        _known_user(request.app.state.store, asked.reader)
    return _shared(request, caller, asked.reader, shared=True)


@router.delete("/shares/{reader}")
def unshare_records(reader: _Name, request: Request, caller: ByUser) -> ShareList:
    """End the sharing with a reader."""
    return _shared(request, caller, reader, shared=False)


def _shared(request: Request, caller: Caller, reader: str, *, shared: bool) -> ShareList:
    accounts = request.app.state.store.accounts
    accounts.share(caller.user.name, reader, shared)
    request.app.state.audit.keep(caller.user.name, "share", reader=reader, shared=shared)
    return ShareList(readers=accounts.readers(caller.user.name))


@router.post("/session", status_code=204)
def sign_in(asked: AskedSession, request: Request, response: Response) -> None:
    """Sign a browser in with a token; it gets a cookie that scripts cannot read."""
    check_same_site(request)
    state, now = request.app.state, time.time()
    found = valid_token(state.store.accounts, asked.token, now)
    wait_s = state.address_rates.take(request.client.host if request.client else "")
    if wait_s or found is None or found[1].session:
        raise Refused(401, "the token is unknown or over", cure="an admin makes one")
    user, token = found
    text, session = new_token(
        user.name, now, label="browser", admin=token.admin, session=True, lives_s=_SESSION_S
    )
    state.store.accounts.put_token(session)
    state.audit.keep(user.name, "sign in", prefix=token.prefix)
    response.set_cookie(
        COOKIE,
        text,
        max_age=int(_SESSION_S),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.delete("/session", status_code=204)
def sign_out(request: Request, response: Response, caller: ByUser) -> None:
    """End the session of a browser."""
    if caller.token.session:
        request.app.state.store.accounts.remove_token(caller.token.digest)
        request.app.state.tokens.forget()
    response.delete_cookie(COOKIE)


def _owner(caller: Caller, asked: str) -> str:
    """The user whose tokens are requested. Those of others need an admin."""
    if asked in ("", caller.user.name):
        return caller.user.name
    if not caller.is_admin:
        raise Refused(403, "only an admin may do this for others", cure="ask one")
    return asked


def _known_user(store: Store, name: str) -> User:
    user = store.accounts.user(name)
    if user is None:
        raise not_found(f"user {name}")
    return user


def _user_view(user: User) -> UserView:
    return UserView(
        name=user.name,
        admin=user.admin,
        disabled=user.disabled,
        created_at=user.created_at,
        quota=AskedQuota(**asdict(user.quota)),
    )


def _token_view(token: AccessToken) -> TokenView:
    return TokenView(
        id=token.digest[:16],
        prefix=token.prefix,
        user=token.user,
        label=token.label,
        admin=token.admin,
        session=token.session,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
    )
