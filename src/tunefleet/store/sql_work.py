"""What was done for jobs, in a database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    Connection,
    delete,
    insert,
    select,
    update,
)

from tunefleet.core.coordination import Lease
from tunefleet.core.stage import StageKey, StageRun, StageSpan
from tunefleet.core.step import StepKey, StepRun
from tunefleet.core.task import Task, WeightedTask
from tunefleet.store import codec, commits, rules
from tunefleet.store.database import Database
from tunefleet.store.lookups import require_job, require_task
from tunefleet.store.schema import (
    job_tasks,
    steps,
)
from tunefleet.store.schema import tasks as task_table
from tunefleet.store.sql_coordination import check_current


class SqlWork:
    """`StoredWork` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_tasks(self, job_id: str, tasks: Sequence[WeightedTask]) -> None:
        rules.check_distinct(tasks)
        with self._database.writing() as connection:
            require_job(connection, job_id)
            _share_tasks(connection, [t.task for t in tasks])
            connection.execute(delete(job_tasks).where(job_tasks.c.job_id == job_id))
            rows = [codec.job_task_row(job_id, i, t) for i, t in enumerate(tasks)]
            if rows:
                connection.execute(insert(job_tasks), rows)

    def tasks(self, job_id: str) -> list[WeightedTask]:
        with self._database.reading() as connection:
            require_job(connection, job_id)
            rows = connection.execute(
                select(task_table, job_tasks.c.name, job_tasks.c.weight)
                .join_from(job_tasks, task_table)
                .where(job_tasks.c.job_id == job_id)
                .order_by(job_tasks.c.position)
            )
            return [codec.task_of(row) for row in rows]

    def commit(
        self,
        run: StageRun,
        *,
        elapsed_s: float = 0.0,
        again: bool = False,
        leases: Sequence[Lease] = (),
    ) -> bool:
        rules.check_result(run)
        with self._database.writing() as connection:
            for lease in leases:
                check_current(connection, lease)
            require_task(connection, run.key.job_id, run.key.task_id)
            committed = commits.committed(connection, run.key)
            if committed is not None and not again:
                return False
            commits.write_run(connection, run, elapsed_s, committed)
        return True

    def stage(self, key: StageKey) -> StageRun | None:
        with self._database.reading() as connection:
            require_task(connection, key.job_id, key.task_id)
            return commits.read_run(connection, key)

    def stages(self, job_id: str) -> list[StageRun]:
        with self._database.reading() as connection:
            require_job(connection, job_id)
            return commits.read_runs(connection, job_id)

    def commit_step(
        self, run: StepRun, *, again: bool = False, leases: Sequence[Lease] = ()
    ) -> bool:
        rules.check_step(run)
        own = (steps.c.owner == run.key.owner, steps.c.kind == run.key.kind.value)
        with self._database.writing() as connection:
            for lease in leases:
                check_current(connection, lease)
            if connection.scalar(select(steps.c.seq).where(*own)) is not None:
                if not again:
                    return False
                connection.execute(delete(steps).where(*own))
            connection.execute(insert(steps).values(codec.step_row(run)))
        return True

    def step(self, key: StepKey) -> StepRun | None:
        own = (steps.c.owner == key.owner, steps.c.kind == key.kind.value)
        with self._database.reading() as connection:
            row = connection.execute(select(steps).where(*own)).one_or_none()
            return None if row is None else codec.step_of(row)

    def steps(self, owner: str) -> list[StepRun]:
        query = select(steps).where(steps.c.owner == owner).order_by(steps.c.seq)
        with self._database.reading() as connection:
            return [codec.step_of(row) for row in connection.execute(query)]

    def forget_steps(self, owner: str) -> None:
        with self._database.writing() as connection:
            connection.execute(delete(steps).where(steps.c.owner == owner))

    def stages_between(self, start: float, end: float) -> list[StageSpan]:
        rules.check_window(start, end)
        with self._database.reading() as connection:
            return commits.read_spans(connection, start, end)


def _share_tasks(connection: Connection, wanted: Sequence[Task]) -> None:
    """Enter the tasks that are new, and what is told now of those that an earlier version left."""
    columns = (task_table.c.task_id, task_table.c.precision)
    ids = [task.task_id for task in wanted]
    rows = connection.execute(select(*columns).where(task_table.c.task_id.in_(ids)))
    known = {task_id: precision for task_id, precision in rows}
    new = [codec.task_row(task) for task in wanted if task.task_id not in known]
    if new:
        connection.execute(insert(task_table), new)
    for task in wanted:
        if known.get(task.task_id) == "" and task.precision:
            of_task = update(task_table).where(task_table.c.task_id == task.task_id)
            connection.execute(of_task.values(precision=task.precision))
