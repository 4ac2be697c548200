"""What was learned in the background, in a database."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Select, insert, select

from tunefleet.store import rules
from tunefleet.store._learnings import Learning
from tunefleet.store.codec import learning_of
from tunefleet.store.database import Database
from tunefleet.store.reuse import sharing_with
from tunefleet.store.schema import learned_jobs, learnings


class SqlLearnings:
    """The part of `RecordExplorer` on learning in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_learning(self, learning: Learning) -> None:
        row = {"tenant": learning.tenant, "value": msgspec.to_builtins(learning)}
        with self._database.writing() as connection:
            connection.execute(insert(learnings).values(row))
            known = set(connection.scalars(_learned(learning.tenant, learning.jobs)))
            of_jobs = [
                {"tenant": learning.tenant, "job_id": job_id}
                for job_id in dict.fromkeys(learning.jobs)
                if job_id not in known
            ]
            if of_jobs:
                connection.execute(insert(learned_jobs), of_jobs)

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
        with self._database.reading() as connection:
            return set(connection.scalars(_learned(tenant, job_ids)))

    def owners(self, tenant: str) -> set[str]:
        with self._database.reading() as connection:
            return {tenant, *connection.scalars(sharing_with(tenant))}


def _learned(tenant: str, job_ids: Sequence[str]) -> Select[str]:
    return select(learned_jobs.c.job_id).where(
        learned_jobs.c.tenant == tenant, learned_jobs.c.job_id.in_(job_ids)
    )
