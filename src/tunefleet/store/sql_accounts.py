"""The users of a service, in a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from tunefleet.core.stage import StageKind
from tunefleet.store import rules
from tunefleet.store._accounts import (
    ANSWERED_S,
    PAGE,
    AccessToken,
    AnsweredRequest,
    KeptNetwork,
    Quota,
    User,
)
from tunefleet.store.database import Database
from tunefleet.store.schema import answers, jobs, networks, shares, stages, tokens, users


class SqlAccounts:
    """`Accounts` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_user(self, user: User) -> None:
        row = {**asdict(user), "admin": int(user.admin), "disabled": int(user.disabled)}
        with self._database.writing() as connection:
            own = users.c.name == user.name
            if connection.scalar(select(users.c.name).where(own)) is None:
                connection.execute(insert(users).values(row))
            else:
                connection.execute(update(users).where(own).values(row))

    def user(self, name: str) -> User | None:
        with self._database.reading() as connection:
            row = connection.execute(select(users).where(users.c.name == name)).one_or_none()
        return None if row is None else _user(row)

    def users(self, after: str = "", limit: int = PAGE) -> list[User]:
        rules.check_limit(limit)
        query = select(users).where(users.c.name > after).order_by(users.c.name).limit(limit)
        with self._database.reading() as connection:
            return [_user(row) for row in connection.execute(query)]

    def put_token(self, token: AccessToken) -> None:
        row = {**asdict(token), "admin": int(token.admin), "session": int(token.session)}
        with self._database.writing() as connection:
            if connection.scalar(select(users.c.name).where(users.c.name == token.user)) is None:
                raise rules.unknown_user(token.user)
            connection.execute(insert(tokens).values(row))

    def token(self, digest: str) -> AccessToken | None:
        with self._database.reading() as connection:
            query = select(tokens).where(tokens.c.digest == digest)
            row = connection.execute(query).one_or_none()
        return None if row is None else _token(row)

    def tokens(self, user: str) -> list[AccessToken]:
        query = select(tokens).where(tokens.c.user == user)
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(tokens.c.created_at, tokens.c.digest))
            return [_token(row) for row in rows]

    def use_token(self, digest: str, at: float) -> None:
        with self._database.writing() as connection:
            own = tokens.c.digest == digest
            connection.execute(update(tokens).where(own).values(last_used_at=at))

    def remove_token(self, digest: str) -> None:
        with self._database.writing() as connection:
            connection.execute(delete(tokens).where(tokens.c.digest == digest))

    def share(self, owner: str, reader: str, shared: bool) -> None:
        own = (shares.c.owner == owner, shares.c.reader == reader)
        with self._database.writing() as connection:
            connection.execute(delete(shares).where(*own))
            if shared:
                connection.execute(insert(shares).values(owner=owner, reader=reader))

    def readers(self, owner: str) -> list[str]:
        query = select(shares.c.reader).where(shares.c.owner == owner).order_by(shares.c.reader)
        with self._database.reading() as connection:
            return list(connection.scalars(query))


class SqlHoldings:
    """`Holdings` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_network(self, network: KeptNetwork) -> None:
        with self._database.writing() as connection:
            if not _has(connection, networks, network.tenant, network.digest):
                connection.execute(insert(networks).values(asdict(network)))

    def network(self, tenant: str, digest: str) -> KeptNetwork | None:
        query = select(networks).where(networks.c.tenant == tenant, networks.c.digest == digest)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else KeptNetwork(**row._mapping)

    def networks(self, tenant: str, after: str = "", limit: int = PAGE) -> list[KeptNetwork]:
        rules.check_limit(limit)
        own = (networks.c.tenant == tenant, networks.c.digest > after)
        query = select(networks).where(*own).order_by(networks.c.digest).limit(limit)
        with self._database.reading() as connection:
            return [KeptNetwork(**row._mapping) for row in connection.execute(query)]

    def stored_bytes(self, tenant: str) -> int:
        query = select(func.sum(networks.c.size)).where(networks.c.tenant == tenant)
        with self._database.reading() as connection:
            return connection.scalar(query) or 0

    def remove_network(self, tenant: str, digest: str) -> None:
        with self._database.writing() as connection:
            own = (networks.c.tenant == tenant, networks.c.digest == digest)
            connection.execute(delete(networks).where(*own))

    def measured_s(self, tenant: str, since: float) -> float:
        query = (
            select(func.sum(stages.c.seconds))
            .join_from(stages, jobs)
            .where(
                stages.c.started_at > since,
                stages.c.kind == StageKind.PROFILE.value,
                jobs.c.tenant == tenant,
            )
        )
        with self._database.reading() as connection:
            return connection.scalar(query) or 0.0

    def places(self, candidates: Sequence[str]) -> set[str]:
        query = select(networks.c.place).where(networks.c.place.in_(candidates))
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def begin_request(
        self, tenant: str, key: str, asked: str, now: float
    ) -> AnsweredRequest | None:
        own = (answers.c.tenant == tenant, answers.c.key == key)
        # A power failure may take these answers; the jobs that they name are found again.
        with self._database.coordinating() as connection:
            connection.execute(delete(answers).where(own[0], answers.c.at < now - ANSWERED_S))
            row = connection.execute(select(answers).where(*own)).one_or_none()
            if row is not None:
                return AnsweredRequest(row.asked, row.answer, row.at)
            first = {"tenant": tenant, "key": key, "asked": asked, "at": now, "answer": None}
            connection.execute(insert(answers).values(first))
        return None

    def end_request(self, tenant: str, key: str, answer: Any) -> None:
        own = (answers.c.tenant == tenant, answers.c.key == key)
        with self._database.coordinating() as connection:
            if answer is None:
                connection.execute(delete(answers).where(*own))
            else:
                connection.execute(update(answers).where(*own).values(answer=answer))

    def forget_unanswered(self) -> None:
        with self._database.writing() as connection:
            connection.execute(delete(answers).where(answers.c.answer == None))  # noqa: E711


def _has(connection: Connection, table: Table, tenant: str, digest: str) -> bool:
    own = (table.c.tenant == tenant, table.c.digest == digest)
    return connection.scalar(select(table.c.tenant).where(*own)) is not None


def _user(row: Row[Any]) -> User:
    quota = Quota(**row.quota)
    return User(row.name, bool(row.admin), row.created_at, bool(row.disabled), quota)


def _token(row: Row[Any]) -> AccessToken:
    values = {field.name: getattr(row, field.name) for field in fields(AccessToken)}
    flags = {"admin": bool(row.admin), "session": bool(row.session)}
    return AccessToken(**{**values, **flags})
