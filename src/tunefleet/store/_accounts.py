"""The contract of a service's users: who they are, what they may see of each other, and the
networks that they keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

#: Users and networks of a page.
PAGE = 100
#: Seconds for which the answer to a numbered request is kept.
ANSWERED_S = 86_400.0
#: The reader that means all tenants.
EVERYONE = "*"
#: The tenant of what the commands of a home do.
OWN_COMMANDS = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """The most a user may take; None is without bound. `jobs` are those not ended, `stored_bytes`
    those of kept networks, `device_s` the seconds of devices in a day."""

    jobs: int | None = None
    stored_bytes: int | None = None
    device_s: float | None = None


@dataclass(frozen=True, slots=True)
class User:
    """A user of the service, who is a tenant by this name. `created_at` is in seconds since the
    epoch. One who is `disabled` may do nothing."""

    name: str
    admin: bool = False
    created_at: float = 0.0
    disabled: bool = False
    quota: Quota = Quota()


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, known by the SHA-256 of its text alone. `prefix` is the beginning of that text.

    `admin`: it may do what its user may as an admin. `session`: a browser has it as a cookie. Times
    are seconds since the epoch; one without `expires_at` does not expire.
    """

    digest: str
    prefix: str
    user: str
    label: str = ""
    admin: bool = False
    session: bool = False
    created_at: float = 0.0
    expires_at: float | None = None
    last_used_at: float | None = None


@dataclass(frozen=True, slots=True)
class KeptNetwork:
    """A network that a tenant uploaded: its file's SHA-256 and name, and where it lies below the
    home."""

    tenant: str
    digest: str
    name: str
    place: str
    size: int
    created_at: float


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that its sender numbered: the digest of what it asked, and the answer; None while
    it is being answered."""

    asked: str
    answer: Any
    at: float


class Accounts(Protocol):
    """Users, their tokens, and who may read whose records.

    **Secrets.** No verb takes or gives the text of a token.
    """

    def put_user(self, user: User) -> None:
        """Add a user, or change one of that name."""

    def user(self, name: str) -> User | None:
        """One user."""

    def users(self, after: str = "", limit: int = PAGE) -> list[User]:
        """A page of the users, by their names."""

    def put_token(self, token: AccessToken) -> None:
        """Add a token. Raises InputError where its user is unknown."""

    def token(self, digest: str) -> AccessToken | None:
        """The token whose text has this SHA-256."""

    def tokens(self, user: str) -> list[AccessToken]:
        """Those of a user, the oldest first."""

    def use_token(self, digest: str, at: float) -> None:
        """Keep when a token was used last; nothing where there is none."""

    def remove_token(self, digest: str) -> None:
        """A token is not valid any more; nothing where there is none."""

    def share(self, owner: str, reader: str, shared: bool) -> None:
        """Let a tenant, or `EVERYONE`, read the records of another, or not any more."""

    def readers(self, owner: str) -> list[str]:
        """Those who may read the records of a tenant, by their names."""


class Holdings(Protocol):
    """What tenants keep in a service: networks, and answers to requests that they numbered."""

    def put_network(self, network: KeptNetwork) -> None:
        """Keep a network; the first of a tenant with this content stays."""

    def network(self, tenant: str, digest: str) -> KeptNetwork | None:
        """One network of a tenant."""

    def networks(self, tenant: str, after: str = "", limit: int = PAGE) -> list[KeptNetwork]:
        """A page of the networks of a tenant, by their digests."""

    def stored_bytes(self, tenant: str) -> int:
        """How many bytes the networks of a tenant have."""

    def remove_network(self, tenant: str, digest: str) -> None:
        """Forget a network; nothing where there is none."""

    def measured_s(self, tenant: str, since: float) -> float:
        """The seconds of the profile stages of a tenant's jobs that began after a time."""

    def places(self, candidates: Sequence[str]) -> set[str]:
        """Which of these places below the home somebody's network has."""

    def begin_request(
        self, tenant: str, key: str, asked: str, now: float
    ) -> AnsweredRequest | None:
        """None where a request with this key is the first of `ANSWERED_S`: it is to be answered
        now. Else what is known of the first one. This and `end_request` survive a killed process,
        not a power failure."""

    def end_request(self, tenant: str, key: str, answer: Any) -> None:
        """Keep the answer to a request; without one (None) it may be sent again."""

    def forget_unanswered(self) -> None:
        """Forget requests without an answer: the process that was to give it has ended."""
