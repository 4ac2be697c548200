"""The users of a service, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tunefleet.core.stage import StageKind
from tunefleet.store import rules
from tunefleet.store._accounts import (
    ANSWERED_S,
    PAGE,
    AccessToken,
    AnsweredRequest,
    KeptNetwork,
    User,
)
from tunefleet.store.memory_state import MemoryState


class MemoryAccounts:
    """`Accounts` in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._users: dict[str, User] = {}
        self._tokens: dict[str, AccessToken] = {}

    def put_user(self, user: User) -> None:
        with self._state.verb():
            self._users[user.name] = user

    def user(self, name: str) -> User | None:
        with self._state.verb():
            return self._users.get(name)

    def users(self, after: str = "", limit: int = PAGE) -> list[User]:
        rules.check_limit(limit)
        with self._state.verb():
            return [self._users[name] for name in sorted(self._users) if name > after][:limit]

    def put_token(self, token: AccessToken) -> None:
        with self._state.verb():
            if token.user not in self._users:
                raise rules.unknown_user(token.user)
            self._tokens[token.digest] = token

    def token(self, digest: str) -> AccessToken | None:
        with self._state.verb():
            return self._tokens.get(digest)

    def tokens(self, user: str) -> list[AccessToken]:
        with self._state.verb():
            own = [token for token in self._tokens.values() if token.user == user]
            return sorted(own, key=lambda token: (token.created_at, token.digest))

    def use_token(self, digest: str, at: float) -> None:
        with self._state.verb():
            if digest in self._tokens:
                self._tokens[digest] = replace(self._tokens[digest], last_used_at=at)

    def remove_token(self, digest: str) -> None:
        with self._state.verb():
            self._tokens.pop(digest, None)

    def share(self, owner: str, reader: str, shared: bool) -> None:
        with self._state.verb():
            self._state.shares.discard((owner, reader))
            if shared:
                self._state.shares.add((owner, reader))

    def readers(self, owner: str) -> list[str]:
        with self._state.verb():
            return sorted(reader for of, reader in self._state.shares if of == owner)


class MemoryHoldings:
    """`Holdings` in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._networks: dict[tuple[str, str], KeptNetwork] = {}
        self._answers: dict[tuple[str, str], AnsweredRequest] = {}

    def put_network(self, network: KeptNetwork) -> None:
        with self._state.verb():
            self._networks.setdefault((network.tenant, network.digest), network)

    def network(self, tenant: str, digest: str) -> KeptNetwork | None:
        with self._state.verb():
            return self._networks.get((tenant, digest))

    def networks(self, tenant: str, after: str = "", limit: int = PAGE) -> list[KeptNetwork]:
        rules.check_limit(limit)
        with self._state.verb():
            own = sorted(key for key in self._networks if key[0] == tenant and key[1] > after)
            return [self._networks[key] for key in own[:limit]]

    def stored_bytes(self, tenant: str) -> int:
        with self._state.verb():
            return sum(each.size for (of, _), each in self._networks.items() if of == tenant)

    def remove_network(self, tenant: str, digest: str) -> None:
        with self._state.verb():
            self._networks.pop((tenant, digest), None)

    def measured_s(self, tenant: str, since: float) -> float:
        with self._state.verb():
            return sum(
                run.seconds
                for entry in self._state.entries.values()
                if entry.job.spec.tenant == tenant
                for run in entry.runs.values()
                if run.key.kind is StageKind.PROFILE and run.started_at > since
            )

    def places(self, candidates: Sequence[str]) -> set[str]:
        with self._state.verb():
            return {each.place for each in self._networks.values()} & set(candidates)

    def begin_request(
        self, tenant: str, key: str, asked: str, now: float
    ) -> AnsweredRequest | None:
        with self._state.verb():
            known = self._answers.get((tenant, key))
            if known is None or known.at < now - ANSWERED_S:
                self._answers[tenant, key] = AnsweredRequest(asked, None, now)
                return None
            return deepcopy(known)

    def end_request(self, tenant: str, key: str, answer: Any) -> None:
        with self._state.verb():
            if answer is None:
                self._answers.pop((tenant, key), None)
            elif (tenant, key) in self._answers:
                known = self._answers[tenant, key]
                self._answers[tenant, key] = replace(known, answer=deepcopy(answer))

    def forget_unanswered(self) -> None:
        with self._state.verb():
            self._answers = {k: a for k, a in self._answers.items() if a.answer is not None}
