"""The jobs of a database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, insert, select, update

from tunefleet.core.events import JobEnded
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.store import codec, removal, rules
from tunefleet.store._base import PAGE, JobOutcome
from tunefleet.store.database import Database
from tunefleet.store.lookups import has_job, require_job
from tunefleet.store.schema import events, jobs, trials
from tunefleet.store.sql_events import event_row

#: No id has a character behind it.
_LAST = chr(0x10FFFF)


class SqlJobs:
    """`Jobs` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, spec: JobSpec, *, job_id: str, now: float) -> Job:
        with self._database.writing() as connection:
            running = connection.execute(
                select(*codec.JOB)
                .where(
                    jobs.c.fingerprint == spec.fingerprint,
                    jobs.c.state == JobState.RUNNING.value,
                )
                .order_by(jobs.c.seq.desc())
                .limit(1)
            ).one_or_none()
            if running is not None:
                job = replace(codec.job_of(running), spec=spec)  # as it is asked for now
                value = codec.job_row(spec, job.job_id, now)["spec"]
                same = jobs.c.job_id == job.job_id
                connection.execute(update(jobs).where(same).values(spec=value))
                return job
            if has_job(connection, job_id):
                raise rules.taken(job_id)
            connection.execute(insert(jobs).values(codec.job_row(spec, job_id, now)))
        return Job(job_id, spec, JobState.RUNNING, now)

    def get(self, job_id: str) -> Job:
        with self._database.reading() as connection:
            query = select(*codec.JOB).where(jobs.c.job_id == job_id)
            row = connection.execute(query).one_or_none()
            if row is None:
                raise rules.unknown_job(job_id)
            return codec.job_of(row)

    def page(
        self,
        *,
        after: str = "",
        limit: int = PAGE,
        state: JobState | None = None,
        fingerprint: str = "",
        prefix: str = "",
        tenant: str | None = None,
    ) -> list[Job]:
        rules.check_limit(limit)
        query = select(*codec.JOB).order_by(jobs.c.seq.desc()).limit(limit)
        if state is not None:
            query = query.where(jobs.c.state == state.value)
        if fingerprint:
            query = query.where(jobs.c.fingerprint == fingerprint)
        if tenant is not None:
            query = query.where(jobs.c.tenant == tenant)
        if prefix:
            query = query.where(jobs.c.job_id.between(prefix, prefix + _LAST))
        with self._database.reading() as connection:
            if after:
                require_job(connection, after)
                seq = select(jobs.c.seq).where(jobs.c.job_id == after).scalar_subquery()
                query = query.where(jobs.c.seq < seq)
            return [codec.job_of(row) for row in connection.execute(query)]

    def finish(
        self, job_id: str, state: JobState, summary: Any, ended: JobEnded | None = None
    ) -> None:
        rules.check_closing(state)
        summary = rules.json_value(summary, "summary")
        with self._database.writing() as connection:
            require_job(connection, job_id)
            connection.execute(
                update(jobs)
                .where(jobs.c.job_id == job_id)
                .values(state=state.value, summary=summary)
            )
            if ended is not None:
                connection.execute(insert(events), [event_row(job_id, time.time(), ended)])

    def summary(self, job_id: str) -> Any:
        with self._database.reading() as connection:
            query = select(jobs.c.summary).where(jobs.c.job_id == job_id)
            row = connection.execute(query).one_or_none()
            if row is None:
                raise rules.unknown_job(job_id)
            return row.summary

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, JobOutcome]:
        count = (
            select(func.count())
            .select_from(trials)
            .where(trials.c.job_id == jobs.c.job_id)
            .scalar_subquery()
        )
        query = select(jobs.c.job_id, jobs.c.summary, count).where(jobs.c.job_id.in_(job_ids))
        with self._database.reading() as connection:
            rows = connection.execute(query)
            return {job_id: JobOutcome(summary, tried) for job_id, summary, tried in rows}

    def remove(self, job_id: str) -> None:
        with self._database.writing() as connection:
            require_job(connection, job_id)
            removal.remove_job(connection, job_id)
