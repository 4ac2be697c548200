"""Rows that a verb needs, and the errors where they are not there; inside a transaction."""

from __future__ import annotations

from sqlalchemy import Connection, select

from tunefleet.store import rules
from tunefleet.store.schema import job_tasks, jobs


def has_job(connection: Connection, job_id: str) -> bool:
    return connection.scalar(select(jobs.c.seq).where(jobs.c.job_id == job_id)) is not None


def require_job(connection: Connection, job_id: str) -> None:
    if not has_job(connection, job_id):
        raise rules.unknown_job(job_id)


def require_task(connection: Connection, job_id: str, task_id: str) -> None:
    own = select(job_tasks.c.position).where(
        job_tasks.c.job_id == job_id, job_tasks.c.task_id == task_id
    )
    if connection.scalar(own) is None:
        require_job(connection, job_id)
        raise rules.unknown_task(task_id, job_id)
