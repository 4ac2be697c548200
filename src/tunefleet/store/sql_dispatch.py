"""Work that is given to other hosts, in a database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from tunefleet.core.hosts import GivenWork, HostIdentity, JoinedHost
from tunefleet.store._dispatch import UNTAKEN_S, gone
from tunefleet.store.database import Database
from tunefleet.store.schema import assignments, hosts
from tunefleet.system.processes import boot_id, boot_seconds


class SqlDispatch:
    """A `Dispatch` in a file of this machine, by its boot clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def join(self, host: HostIdentity, resources: Any) -> None:
        with self._database.coordinating() as connection:
            _end(connection, host.name)
            row = {
                "name": host.name,
                "incarnation": host.incarnation,
                "boot": boot_id(),
                "beat_at": boot_seconds(),
                "dismissed": 0,
                "resources": resources,
            }
            connection.execute(insert(hosts).values(row))

    def beat(self, host: HostIdentity) -> bool:
        with self._database.coordinating() as connection:
            _check_current(connection, host)
            own = hosts.c.name == host.name
            connection.execute(update(hosts).where(own).values(beat_at=boot_seconds()))
            return not connection.scalar(select(hosts.c.dismissed).where(own))

    def dismiss(self, name: str) -> bool:
        with self._database.coordinating() as connection:
            own = (hosts.c.name == name, hosts.c.boot == boot_id())
            return bool(connection.execute(update(hosts).where(*own).values(dismissed=1)).rowcount)

    def leave(self, host: HostIdentity) -> None:
        with self._database.coordinating() as connection:
            if _is_current(connection, host):
                _end(connection, host.name)

    def hosts(self) -> list[JoinedHost]:
        now = boot_seconds()
        joined = select(hosts).where(hosts.c.boot == boot_id()).order_by(hosts.c.name)
        with self._database.reading() as connection:
            return [
                JoinedHost(
                    HostIdentity(row.name, row.incarnation), row.resources, now - row.beat_at
                )
                for row in connection.execute(joined)
            ]

    def give(self, host: HostIdentity, giver: str, value: Any) -> int:
        with self._database.coordinating() as connection:
            _check_current(connection, host)
            untaken = assignments.c.reported_at < boot_seconds() - UNTAKEN_S
            connection.execute(delete(assignments).where(untaken))
            row = {"host": host.name, "giver": giver, "value": value, "abandoned": 0}
            inserted = insert(assignments).values(row).returning(assignments.c.seq)
            return int(connection.execute(inserted).scalar_one())

    def given(self, host: HostIdentity) -> list[GivenWork]:
        own = select(assignments).where(
            assignments.c.host == host.name, assignments.c.reported_at.is_(None)
        )
        with self._database.reading() as connection:
            _check_current(connection, host)
            rows = connection.execute(own.order_by(assignments.c.seq))
            return [GivenWork(row.seq, row.value, bool(row.abandoned)) for row in rows]

    def abandon(self, number: int) -> None:
        with self._database.coordinating() as connection:
            own = assignments.c.seq == number
            connection.execute(update(assignments).where(own).values(abandoned=1))

    def report(self, host: HostIdentity, number: int, value: Any) -> None:
        with self._database.coordinating() as connection:
            _check_current(connection, host)
            own = (
                assignments.c.seq == number,
                assignments.c.host == host.name,
                assignments.c.reported_at.is_(None),
            )
            reported = update(assignments).where(*own)
            connection.execute(reported.values(report=value, reported_at=boot_seconds()))

    def take_reports(self, giver: str) -> list[tuple[int, Any]]:
        own = (assignments.c.giver == giver, assignments.c.reported_at.is_not(None))
        with self._database.reading() as connection:
            if connection.scalar(select(assignments.c.seq).where(*own).limit(1)) is None:
                return []  # without keeping others from writing
        with self._database.coordinating() as connection:
            rows = connection.execute(select(assignments).where(*own).order_by(assignments.c.seq))
            taken = [(row.seq, row.report) for row in rows]
            connection.execute(delete(assignments).where(*own))
            return taken


def _is_current(connection: Connection, host: HostIdentity) -> bool:
    own = select(hosts.c.incarnation).where(hosts.c.name == host.name, hosts.c.boot == boot_id())
    return connection.scalar(own) == host.incarnation


def _check_current(connection: Connection, host: HostIdentity) -> None:
    if not _is_current(connection, host):
        raise gone(host)


def _end(connection: Connection, name: str) -> None:
    connection.execute(delete(assignments).where(assignments.c.host == name))
    connection.execute(delete(hosts).where(hosts.c.name == name))
