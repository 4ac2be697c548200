"""Authentication and rate limits: the user of a token or of a browser's session."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from tunefleet.service.problems import Refused
from tunefleet.store import AccessToken, User

COOKIE = "tunefleet_session"
#: Burst, and requests a second, of one user; then of one address without a token.
_BURST, _PER_S = 400.0, 100.0
_ADDRESS_BURST, _ADDRESS_PER_S = 40.0, 5.0
#: Callers whose rates are kept.
_MOST_CALLERS = 10_000
_SAFE = ("GET", "HEAD", "OPTIONS")

_bearer = HTTPBearer(auto_error=False, description="a token: tf_...")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="a browser's session")


@dataclass(frozen=True, slots=True)
class Caller:
    """A user and the token they use. Admin rights need an admin's token."""

    user: User
    token: AccessToken

    @property
    def is_admin(self) -> bool:
        return self.user.admin and self.token.admin


class Rates:
    """A token bucket for each caller."""

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> float:
        """Count a request. Returns the seconds to wait if it exceeds the rate, else 0."""
        now = time.monotonic()
        with self._lock:
            left, at = self._left.pop(who, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._per_s)
            self._left[who] = (max(left - 1, 0.0) if left >= 1 else left, now)
            if len(self._left) > _MOST_CALLERS:
                self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self._per_s


def user_rates() -> Rates:
    return Rates(_BURST, _PER_S)


def address_rates() -> Rates:
    return Rates(_ADDRESS_BURST, _ADDRESS_PER_S)


def caller_of(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    cookie: Annotated[str | None, Security(_cookie)],
) -> Caller:
    """The caller of a request. Raises Refused: 401 without a valid token, 403 for a change that
    another site requested, 429 for too many requests."""
    state = request.app.state
    text = bearer.credentials if bearer is not None else cookie
    found = state.tokens.valid(text, time.time()) if text else None
    if found is None or found[1].session != (bearer is None):
        _within(state.address_rates, request.client.host if request.client else "")
        raise Refused(
            401,
            "the token is missing, unknown or over" if text else "a token is needed",
            cure="send it as Authorization: Bearer tf_...; an admin makes one",
            headers={"WWW-Authenticate": "Bearer"},
        )
    user, token = found
    if token.session and request.method not in _SAFE:
        check_same_site(request)
    _within(state.user_rates, user.name)
    return Caller(user, token)


def admin_of(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
    """The caller, who has to be an admin."""
    if not caller.is_admin:
        raise Refused(403, "only an admin may do this", cure="ask one, or use an admin's token")
    return caller


def check_same_site(request: Request) -> None:
    """Raises Refused where a browser sent a request on behalf of another site."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = str(request.base_url).rstrip("/")
    if site not in (None, "same-origin", "none") or (origin is not None and origin != own):
        raise Refused(
            403,
            f"the request came from another site than {own}",
            cure="use its own page; behind a reverse proxy it needs serve --proxy ADDRESS",
        )
    if site is None and origin is None:
        raise Refused(403, "a session may be used by browsers alone", cure="use a token")


def _within(rates: Rates, who: str) -> None:
    wait_s = rates.take(who)
    if wait_s:
        raise Refused(
            429,
            "too many requests",
            cure=f"wait for {wait_s:.1f} s",
            headers={"Retry-After": str(max(1, round(wait_s)))},
        )


ByUser = Annotated[Caller, Depends(caller_of)]
ByAdmin = Annotated[Caller, Depends(admin_of)]
