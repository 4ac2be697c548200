"""The events of jobs in a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, insert, select

from tunefleet.core.events import Event
from tunefleet.store import rules
from tunefleet.store._events import PAGE, KeptEvent
from tunefleet.store.database import Database
from tunefleet.store.event_codec import SCHEMA, UNKEPT, event_of, event_value
from tunefleet.store.schema import events as table
from tunefleet.store.schema import jobs


def event_row(job_id: str, at: float, event: Event) -> dict[str, Any]:
    """The columns of an event but its number."""
    return {
        "job_id": job_id,
        "at": at,
        "kind": type(event).__name__,
        "version": SCHEMA,
        "value": event_value(event),
    }


class SqlEvents:
    """`Events` of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, job_id: str, at: float, events: Sequence[Event]) -> None:
        rows = [event_row(job_id, at, event) for event in events if not isinstance(event, UNKEPT)]
        if not rows:
            return
        with self._database.coordinating() as connection:
            known = select(jobs.c.seq).where(jobs.c.job_id == job_id)
            if connection.execute(known).one_or_none() is None:
                raise rules.unknown_job(job_id)
            connection.execute(insert(table), rows)

    def page(
        self,
        after: int = 0,
        job_ids: Sequence[str] = (),
        limit: int = PAGE,
        kinds: Sequence[type[Event]] = (),
    ) -> list[KeptEvent]:
        wanted = select(table).where(table.c.seq > after)
        if job_ids:
            wanted = wanted.where(table.c.job_id.in_(job_ids))
        if kinds:
            wanted = wanted.where(table.c.kind.in_([kind.__name__ for kind in kinds]))
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(table.c.seq).limit(limit)).all()
        return [
            KeptEvent(row.seq, row.job_id, row.at, event_of(row.kind, row.version, row.value))
            for row in rows
        ]

    def last(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute(select(func.max(table.c.seq))).scalar() or 0)
