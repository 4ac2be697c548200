"""Tokens: random texts that are shown once and stored as their SHA-256."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections import OrderedDict

from tunefleet.errors import InputError
from tunefleet.store import AccessToken, Accounts, User

_MARK = "tf_"
#: Characters of a token's beginning that lists show.
_PREFIX = len(_MARK) + 6
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
#: Seconds between two updates of the last use of a token.
USED_AGAIN_S = 60.0
#: Seconds for which a valid token is not looked up again, and how many are remembered.
_KNOWN_S, _MOST_KNOWN = 1.0, 10_000


def new_token(
    user: str,
    now: float,
    *,
    label: str = "",
    admin: bool = False,
    session: bool = False,
    lives_s: float | None = None,
) -> tuple[str, AccessToken]:
    """The text of a token of 32 random bytes, and the record that is stored."""
    text = _MARK + secrets.token_urlsafe(32)
    token = AccessToken(
        digest=digest_of(text),
        prefix=text[:_PREFIX],
        user=user,
        label=label,
        admin=admin,
        session=session,
        created_at=now,
        expires_at=None if lives_s is None else now + lives_s,
    )
    return text, token


def digest_of(text: str) -> str:
    """The SHA-256 under which a token is stored; a token has too much entropy to be guessed from
    it."""
    return hashlib.sha256(text.encode()).hexdigest()


def valid_token(accounts: Accounts, text: str, now: float) -> tuple[User, AccessToken] | None:
    """The user and the token of a text; None where it is unknown or expired, or its user is
    disabled."""
    token = accounts.token(digest_of(text))
    if token is None or (token.expires_at is not None and token.expires_at <= now):
        return None
    user = accounts.user(token.user)
    if user is None or user.disabled:
        return None
    if token.last_used_at is None or now - token.last_used_at > USED_AGAIN_S:
        accounts.use_token(token.digest, now)
    return user, token


class KnownTokens:
    """A cache of `valid_token`: results are valid for a second, after which changes by other
    processes take effect. Thread-safe."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._lock = threading.Lock()
        self._changes = 0
        self._known: OrderedDict[str, tuple[float, User, AccessToken]] = OrderedDict()

    def valid(self, text: str, now: float) -> tuple[User, AccessToken] | None:
        """As `valid_token`."""
        name = digest_of(text)
        with self._lock:
            changes, known = self._changes, self._known.get(name)
        if known is not None and 0 <= now - known[0] < _KNOWN_S:
            _, user, token = known
            is_over = token.expires_at is not None and token.expires_at <= now
            return None if is_over else (user, token)
        found = valid_token(self._accounts, text, now)
        with self._lock:
            self._known.pop(name, None)
            # A value that was read before a change is not cached after it.
            if found is not None and changes == self._changes:
                self._known[name] = (now, *found)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return found

    def forget(self) -> None:
        """Clear the cache, after a token or a user was changed or removed."""
        with self._lock:
            self._changes += 1
            self._known.clear()


def check_name(name: str) -> str:
    """The name of a user. Raises InputError where it is not valid."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a user",
            cure="use small letters, digits, dots, dashes and underscores, 64 at most",
        )
    return name


def first_token(accounts: Accounts, name: str, now: float) -> str | None:
    """A token of an admin of this name, if there is no user yet."""
    if accounts.users(limit=1):
        return None
    accounts.put_user(User(check_name(name), admin=True, created_at=now))
    text, token = new_token(name, now, label="first", admin=True)
    accounts.put_token(token)
    return text
