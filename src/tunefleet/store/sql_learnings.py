"""What was learned in the background, in a database."""

from __future__ import annotations

import msgspec
from sqlalchemy import insert, or_, select

from tunefleet.store import rules
from tunefleet.store._accounts import EVERYONE
from tunefleet.store._learnings import Learning
from tunefleet.store.codec import learning_of
from tunefleet.store.database import Database
from tunefleet.store.schema import learned_jobs, learnings, shares


class SqlLearnings:
    """The part of `RecordExplorer` on learning in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_learning(self, learning: Learning) -> None:
        row = {"tenant": learning.tenant, "value": msgspec.to_builtins(learning)}
        of_jobs = [{"tenant": learning.tenant, "job_id": job_id} for job_id in learning.jobs]
        with self._database.writing() as connection:
            connection.execute(insert(learnings).values(row))
            if of_jobs:
                connection.execute(insert(learned_jobs).prefix_with("OR IGNORE"), of_jobs)

    def learnings(self, tenant: str, limit: int) -> list[Learning]:
        rules.check_limit(limit)
        query = (
            select(learnings.c.value)
            .where(learnings.c.tenant == tenant)
            .order_by(learnings.c.seq.desc())
            .limit(limit)
        )
        with self._database.reading() as connection:
            return [learning_of(value) for value in connection.scalars(query)]

    def learned(self, tenant: str, job_ids: tuple[str, ...]) -> set[str]:
        query = select(learned_jobs.c.job_id).where(
            learned_jobs.c.tenant == tenant, learned_jobs.c.job_id.in_(job_ids)
        )
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def owners(self, tenant: str) -> set[str]:
        query = select(shares.c.owner).where(
            or_(shares.c.reader == tenant, shares.c.reader == EVERYONE)
        )
        with self._database.reading() as connection:
            return {tenant, *connection.scalars(query)}
