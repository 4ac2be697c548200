"""Removing a job from the database, with all that nobody else refers to."""

from __future__ import annotations

from sqlalchemy import Connection, delete, exists, select

from tunefleet.store import reuse
from tunefleet.store.origins import forget_unused
from tunefleet.store.schema import (
    best,
    candidates,
    events,
    job_tasks,
    jobs,
    models,
    requests,
    selections,
    stages,
    steps,
    trials,
    winners,
)


def remove_job(connection: Connection, job_id: str) -> None:
    """Delete the rows of a job; tasks stay, since their programs have no other place."""
    own_tasks = select(job_tasks.c.task_id).where(job_tasks.c.job_id == job_id)
    own_stages = select(stages.c.seq).where(stages.c.job_id == job_id)
    tasks = list(connection.scalars(own_tasks))
    beaten = list(connection.scalars(select(best.c.task_id).where(best.c.job_id == job_id)))
    connection.execute(delete(best).where(best.c.job_id == job_id))
    connection.execute(delete(winners).where(winners.c.job_id == job_id))
    for task_id in beaten:  # while the row of the job says on which device it was measured
        reuse.enter_best(connection, job_id, task_id)
    came_from = select(trials.c.origin).where(trials.c.job_id == job_id).distinct()
    origins = [key for key in connection.scalars(came_from) if key is not None]
    connection.execute(delete(trials).where(trials.c.job_id == job_id))
    forget_unused(connection, origins)
    connection.execute(delete(models).where(models.c.job_id == job_id))
    connection.execute(delete(selections).where(selections.c.stage.in_(own_stages)))
    connection.execute(delete(stages).where(stages.c.job_id == job_id))
    connection.execute(delete(steps).where(steps.c.owner == job_id))
    connection.execute(delete(events).where(events.c.job_id == job_id))
    connection.execute(delete(job_tasks).where(job_tasks.c.job_id == job_id))
    connection.execute(delete(requests).where(requests.c.job_id == job_id))
    connection.execute(delete(jobs).where(jobs.c.job_id == job_id))
    used = [
        exists().where(table.c.candidate == candidates.c.key)
        for table in (selections, trials, winners)
    ]
    for task_id in tasks:
        unused = [~each for each in used]
        connection.execute(delete(candidates).where(candidates.c.task_id == task_id, *unused))
