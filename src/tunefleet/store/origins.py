"""Where records come from, as lists of them are filtered and sorted; inside a transaction."""

from __future__ import annotations

from sqlalchemy import Connection, and_, delete, exists, insert, select

from tunefleet.core.job import JobSpec
from tunefleet.core.task import Task
from tunefleet.store import codec
from tunefleet.store.columns import plain
from tunefleet.store.schema import job_tasks, jobs, origins, tasks, trials


def origin_row(spec: JobSpec, task: Task) -> dict[str, str]:
    """What lists of records have of a task of a job."""
    return {
        "tenant": spec.tenant,
        "network": plain(spec.network.name),
        "device": plain(spec.device.name),
        "target": plain(str(spec.target)),
        "task_id": task.task_id,
        "name": task.name,
        "operator": task.operator,
        "shapes": task.shapes,
    }


def origin_of(connection: Connection, job_id: str, task_id: str) -> int:
    """The origin of the records of a task of a job, entered where it is new."""
    earlier = select(trials.c.origin).where(
        trials.c.job_id == job_id, trials.c.task_id == task_id, trials.c.origin.is_not(None)
    )
    known = connection.scalar(earlier.limit(1))
    if known is not None:
        return int(known)
    row = connection.execute(
        select(jobs.c.spec, tasks, job_tasks.c.name, job_tasks.c.weight)
        .join_from(job_tasks, jobs)
        .join(tasks, tasks.c.task_id == job_tasks.c.task_id)
        .where(job_tasks.c.job_id == job_id, job_tasks.c.task_id == task_id)
    ).one()
    values = origin_row(codec.spec_of(row.spec), codec.task_of(row).task)
    same = and_(*(origins.c[name] == value for name, value in values.items()))
    known = connection.scalar(select(origins.c.key).where(same))
    if known is None:
        known = connection.scalar(insert(origins).values(values).returning(origins.c.key))
    assert known is not None
    return int(known)


def forget_unused(connection: Connection, keys: list[int]) -> None:
    """Remove those of these origins that no record has any more."""
    used = exists().where(trials.c.origin == origins.c.key)
    connection.execute(delete(origins).where(origins.c.key.in_(keys), ~used))
