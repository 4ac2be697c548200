"""The durable store: portable SQL through SQLAlchemy Core, one transaction per verb."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)

from tunefleet.core.coordination import Lease
from tunefleet.core.home import Home
from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.stage import StageKey, StageRun, StageSpan, UpdateResult
from tunefleet.core.step import StepKey, StepRun
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Failure, Trial
from tunefleet.errors import SetupError
from tunefleet.store import codec, commits, removal, reuse, rules
from tunefleet.store._base import BestRecord, Record
from tunefleet.store.database import Database, url_of
from tunefleet.store.revisions import bring_to_head
from tunefleet.store.schema import (
    best,
    candidates,
    job_tasks,
    jobs,
    models,
    stages,
    steps,
    trials,
    winners,
)
from tunefleet.store.schema import tasks as task_table
from tunefleet.store.sql_coordination import SqlCoordination, check_current
from tunefleet.store.sql_events import SqlEvents


def store_path(home: Path) -> Path:
    """Where the store of a home directory lies."""
    return Home(home).store


def open_store(home: Path) -> SqlStore:
    """The store of a home directory, both created when missing."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"{home} cannot be the home of a store: {error.strerror}", cure="give another --home"
        ) from error
    return SqlStore.open(store_path(home))


class SqlStore:
    """A `Store` in a SQLite file. A forked or spawned process may use or open it as well."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.coordination = SqlCoordination(database)
        self.events = SqlEvents(database)

    @classmethod
    def open(cls, url_or_path: str | Path, *, busy_timeout_s: float = 30.0) -> SqlStore:
        """Open, create or upgrade a file; its directory exists. One that a process left without
        closing it is checked first.

        A verb waits `busy_timeout_s` for other writers, then raises RetryElsewhereError.
        """
        database = Database(url_of(url_or_path), busy_timeout_s=busy_timeout_s)
        try:
            if database.left_open():
                database.check()
            bring_to_head(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def open_job(self, spec: JobSpec, *, job_id: str, now: float) -> Job:
        with self._database.writing() as connection:
            running = connection.execute(
                select(jobs)
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
            if _has_job(connection, job_id):
                raise rules.taken(job_id)
            connection.execute(insert(jobs).values(codec.job_row(spec, job_id, now)))
        return Job(job_id, spec, JobState.RUNNING, now)

    def jobs(self) -> list[Job]:
        with self._database.reading() as connection:
            rows = connection.execute(select(jobs).order_by(jobs.c.seq.desc()))
            return [codec.job_of(row) for row in rows]

    def put_tasks(self, job_id: str, tasks: Sequence[WeightedTask]) -> None:
        rules.check_distinct(tasks)
        with self._database.writing() as connection:
            _require_job(connection, job_id)
            _share_tasks(connection, [t.task for t in tasks])
            connection.execute(delete(job_tasks).where(job_tasks.c.job_id == job_id))
            rows = [codec.job_task_row(job_id, i, t) for i, t in enumerate(tasks)]
            if rows:
                connection.execute(insert(job_tasks), rows)

    def tasks(self, job_id: str) -> list[WeightedTask]:
        with self._database.reading() as connection:
            _require_job(connection, job_id)
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
            _require_task(connection, run.key.job_id, run.key.task_id)
            committed = commits.committed(connection, run.key)
            if committed is not None and not again:
                return False
            commits.write_run(connection, run, elapsed_s, committed)
        return True

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

    def stage(self, key: StageKey) -> StageRun | None:
        with self._database.reading() as connection:
            _require_task(connection, key.job_id, key.task_id)
            return commits.read_run(connection, key)

    def stages(self, job_id: str) -> list[StageRun]:
        with self._database.reading() as connection:
            _require_job(connection, job_id)
            return commits.read_runs(connection, job_id)

    def stages_between(self, start: float, end: float) -> list[StageSpan]:
        rules.check_window(start, end)
        with self._database.reading() as connection:
            return commits.read_spans(connection, start, end)

    def trials(self, job_id: str, task_id: str | None = None) -> list[Trial]:
        query = (
            select(*codec.TRIAL)
            .join_from(trials, candidates)
            .where(trials.c.job_id == job_id)
            .order_by(trials.c.seq)
        )
        with self._database.reading() as connection:
            if task_id is None:
                _require_job(connection, job_id)
            else:
                _require_task(connection, job_id, task_id)
                query = query.where(trials.c.task_id == task_id)
            return [codec.trial_of(row) for row in connection.execute(query).all()]

    def trial_count(self, job_id: str) -> int:
        with self._database.reading() as connection:
            _require_job(connection, job_id)
            count = select(func.count()).select_from(trials).where(trials.c.job_id == job_id)
            return connection.scalar(count) or 0

    def model(self, job_id: str) -> UpdateResult:
        with self._database.reading() as connection:
            _require_job(connection, job_id)
            newest = (
                select(models.c.model, stages.c.result)
                .join_from(models, stages)
                .where(models.c.job_id == job_id)
                .order_by(models.c.stage.desc())
                .limit(1)
            )
            row = connection.execute(newest).one_or_none()
            return UpdateResult() if row is None else codec.update_of(row.model, row.result)

    def records(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tier: Tier,
        limit: int,
    ) -> list[Record]:
        rules.check_limit(limit)
        fastest = reuse.fastest_trials(task_id, device, toolchain, tier)
        query = (
            select(trials.c.job_id, *codec.TRIAL)
            .join_from(fastest, trials, fastest.c.seq == trials.c.seq)
            .join(candidates)
            .where(fastest.c.place == 1)
            .order_by(trials.c.latency_s, trials.c.seq)
            .limit(limit)
        )
        with self._database.reading() as connection:
            known = select(task_table.c.task_id).where(task_table.c.task_id == task_id)
            if connection.scalar(known) is None:
                raise rules.unknown_task(task_id)
            return reuse.records(connection, task_id, connection.execute(query).all())

    def best_records(
        self,
        operator: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        measured: int = 1,
    ) -> list[BestRecord]:
        with self._database.reading() as connection:
            query = reuse.fastest_of_tasks(operator, device, toolchain, measured)
            return [BestRecord(*row) for row in connection.execute(query)]

    def select_winner(
        self,
        job_id: str,
        task_id: str,
        winner: Trial | None,
        checks: Any,
        rejected: Sequence[tuple[str, Failure]] = (),
    ) -> None:
        rules.check_winner(winner)
        checks = rules.json_value(checks, "checks")
        own = and_(winners.c.job_id == job_id, winners.c.task_id == task_id)
        with self._database.writing() as connection:
            _require_task(connection, job_id, task_id)
            row = {"job_id": job_id, "task_id": task_id, "checks": checks}
            if winner is not None:
                [key] = commits.candidate_keys(connection, task_id, [winner.candidate])
                row |= codec.winner_row(winner, key)
            # The best-only entry refers to the winner, so it goes first and is found again.
            connection.execute(
                delete(best).where(best.c.job_id == job_id, best.c.task_id == task_id)
            )
            connection.execute(delete(winners).where(own))
            connection.execute(insert(winners).values(row))
            reuse.enter_best(connection, job_id, task_id)
            for candidate_id, failure in rejected:
                reuse.reject(connection, job_id, task_id, candidate_id, failure)

    def winners(self, job_id: str) -> dict[str, tuple[Trial | None, Any]]:
        query = (
            select(winners.c.task_id, winners.c.checks, *codec.WINNER)
            .join_from(winners, candidates, isouter=True)
            .where(winners.c.job_id == job_id)
        )
        with self._database.reading() as connection:
            _require_job(connection, job_id)
            return {
                task_id: (codec.trial_of(columns) if columns[0] is not None else None, checks)
                for task_id, checks, *columns in connection.execute(query)
            }

    def best(
        self, task_id: str, device: DeviceIdentity, toolchain: ToolchainIdentity
    ) -> Record | None:
        """The entry of the best-only table: the fastest winner any job delivered here."""
        query = (
            select(winners.c.job_id, *codec.WINNER)
            .join_from(best, winners)
            .join(candidates)
            .where(
                best.c.task_id == task_id,
                best.c.device_exact == device.exact,
                best.c.toolchain_exact == toolchain.exact,
            )
        )
        with self._database.reading() as connection:
            records = reuse.records(connection, task_id, connection.execute(query).all())
        return records[0] if records else None

    def finish(self, job_id: str, state: JobState, summary: Any) -> None:
        rules.check_closing(state)
        summary = rules.json_value(summary, "summary")
        with self._database.writing() as connection:
            _require_job(connection, job_id)
            connection.execute(
                update(jobs)
                .where(jobs.c.job_id == job_id)
                .values(state=state.value, summary=summary)
            )

    def summary(self, job_id: str) -> Any:
        with self._database.reading() as connection:
            _require_job(connection, job_id)
            return connection.scalar(select(jobs.c.summary).where(jobs.c.job_id == job_id))

    def remove_job(self, job_id: str) -> None:
        with self._database.writing() as connection:
            _require_job(connection, job_id)
            removal.remove_job(connection, job_id)

    def close(self) -> None:
        self._database.close()


def _has_job(connection: Connection, job_id: str) -> bool:
    return connection.scalar(select(jobs.c.seq).where(jobs.c.job_id == job_id)) is not None


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


def _require_job(connection: Connection, job_id: str) -> None:
    if not _has_job(connection, job_id):
        raise rules.unknown_job(job_id)


def _require_task(connection: Connection, job_id: str, task_id: str) -> None:
    own = select(job_tasks.c.position).where(
        job_tasks.c.job_id == job_id, job_tasks.c.task_id == task_id
    )
    if connection.scalar(own) is None:
        _require_job(connection, job_id)
        raise rules.unknown_task(task_id, job_id)
