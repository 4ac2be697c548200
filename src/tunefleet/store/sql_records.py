"""What was measured, in a database."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import (
    and_,
    delete,
    func,
    insert,
    select,
)

from tunefleet.core.forecast import TaskCurve
from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.stage import UpdateResult
from tunefleet.core.trial import Failure, Trial
from tunefleet.store import codec, commits, reuse, rules
from tunefleet.store._base import FIRST, PAGE, BestEntry, BestRecord, EntryPlace, Record
from tunefleet.store.database import Database
from tunefleet.store.lookups import require_job, require_task
from tunefleet.store.schema import (
    best,
    candidates,
    job_tasks,
    models,
    stages,
    trials,
    winners,
)
from tunefleet.store.schema import tasks as task_table


class SqlRecords:
    """`StoredRecords` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def trials(self, job_id: str, task_id: str | None = None) -> list[Trial]:
        query = (
            select(*codec.TRIAL)
            .join_from(trials, candidates)
            .where(trials.c.job_id == job_id)
            .order_by(trials.c.seq)
        )
        with self._database.reading() as connection:
            if task_id is None:
                require_job(connection, job_id)
            else:
                require_task(connection, job_id, task_id)
                query = query.where(trials.c.task_id == task_id)
            return [codec.trial_of(row) for row in connection.execute(query).all()]

    def trial_count(self, job_id: str) -> int:
        with self._database.reading() as connection:
            query = select(func.count()).select_from(trials).where(trials.c.job_id == job_id)
            count = connection.scalar(query) or 0
            if not count:
                require_job(connection, job_id)
            return count

    def curves(self, job_id: str) -> list[TaskCurve]:
        query = (
            select(
                trials.c.task_id,
                task_table.c.operator,
                task_table.c.flops,
                job_tasks.c.weight,
                trials.c.latency_s,
                (func.row_number().over(order_by=trials.c.seq) - 1).label("number"),
            )
            .select_from(trials)
            .join(task_table)
            .join(
                job_tasks,
                and_(
                    job_tasks.c.job_id == trials.c.job_id, job_tasks.c.task_id == trials.c.task_id
                ),
            )
            .where(trials.c.job_id == job_id)
            .order_by(job_tasks.c.position, trials.c.seq)
        )
        with self._database.reading() as connection:
            require_job(connection, job_id)
            rows = connection.execute(query).all()
        curves = []
        for _, of_task in groupby(rows, lambda row: str(row.task_id)):
            all_of_task = list(of_task)
            first = all_of_task[0]
            latencies_s = tuple(row.latency_s for row in all_of_task)
            named = (first.task_id, first.operator, first.flops, first.weight)
            numbers = tuple(row.number for row in all_of_task)
            curves.append(TaskCurve(*named, latencies_s, numbers))
        return curves

    def model(self, job_id: str) -> UpdateResult:
        with self._database.reading() as connection:
            require_job(connection, job_id)
            newest = (
                select(models.c.model, stages.c.result)
                .join_from(models, stages)
                .where(models.c.job_id == job_id)
                .order_by(models.c.stage.desc())
                .limit(1)
            )
            row = connection.execute(newest).one_or_none()
            return UpdateResult() if row is None else codec.update_of(row.model, row.result)

    def fastest(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tier: Tier,
        limit: int,
        tenant: str = "",
    ) -> list[Record]:
        rules.check_limit(limit)
        fastest: dict[str, Any] = {}
        with self._database.reading() as connection:
            with reuse.fastest_trials(connection, task_id, device, toolchain, tier, tenant) as rows:
                while len(fastest) < limit and (row := rows.fetchone()) is not None:
                    fastest.setdefault(row.candidate_id, row)
            if not fastest:
                known = select(task_table.c.task_id).where(task_table.c.task_id == task_id)
                if connection.scalar(known) is None:
                    raise rules.unknown_task(task_id)
            return reuse.records(connection, task_id, list(fastest.values()))

    def fastest_of_operator(
        self,
        operator: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        measured: int = 1,
        tenant: str = "",
    ) -> list[BestRecord]:
        with self._database.reading() as connection:
            query = reuse.fastest_of_tasks(operator, device, toolchain, measured, tenant)
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
            require_task(connection, job_id, task_id)
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
            require_job(connection, job_id)
            return {
                task_id: (codec.trial_of(columns) if columns[0] is not None else None, checks)
                for task_id, checks, *columns in connection.execute(query)
            }

    def best(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tenant: str = "",
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
                reuse.seen_by(best.c.tenant, tenant),
            )
            .order_by(winners.c.latency_s, best.c.tenant)
            .limit(1)
        )
        with self._database.reading() as connection:
            records = reuse.records(connection, task_id, connection.execute(query).all())
        return records[0] if records else None

    def best_page(
        self,
        *,
        operator: str = "",
        after: EntryPlace = FIRST,
        limit: int = PAGE,
        tenant: str = "",
    ) -> list[BestEntry]:
        rules.check_limit(limit)
        with self._database.reading() as connection:
            return reuse.best_page(connection, operator, after, limit, tenant)
