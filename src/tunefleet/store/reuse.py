"""What later jobs reuse: records of the fastest trials, and the best-only table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    tuple_,
    update,
)

from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.trial import Failure, FailureKind, Measurement
from tunefleet.store import codec
from tunefleet.store._accounts import EVERYONE
from tunefleet.store._base import BestEntry, EntryPlace, Record
from tunefleet.store.schema import (
    best,
    candidates,
    job_tasks,
    jobs,
    shares,
    tasks,
    trials,
    winners,
)


def sharing_with(tenant: Any) -> Select[str]:
    """The owners that share their records with a tenant."""
    return select(shares.c.owner).where(shares.c.reader.in_([tenant, EVERYONE]))


def seen_by(owner: ColumnElement[str], tenant: Any) -> ColumnElement[bool]:
    """Whether records of an owner are a tenant's, or were shared with it."""
    return or_(owner == tenant, owner.in_(sharing_with(tenant)))


def reject(
    connection: Connection, job_id: str, task_id: str, candidate_id: str, failure: Failure
) -> None:
    """Make a failure of every trial of a candidate where the job's device and toolchain ran it."""
    own = jobs.alias("own")
    same_place = (
        select(jobs.c.job_id)
        .join(own, own.c.job_id == job_id)
        .where(
            jobs.c.device_exact == own.c.device_exact,
            jobs.c.toolchain_exact == own.c.toolchain_exact,
        )
    )
    connection.execute(
        update(trials)
        .where(
            trials.c.task_id == task_id,
            trials.c.candidate_id == candidate_id,
            trials.c.job_id.in_(same_place),
        )
        .values(**codec.outcome_row(failure))
    )


def fastest_trials(
    connection: Connection,
    task_id: str,
    device: DeviceIdentity,
    toolchain: ToolchainIdentity,
    tier: Tier,
    tenant: str,
) -> CursorResult[Any]:
    """(job id, columns of a trial) of the measured trials of a tier, the fastest first, none of
    jobs that share their device.

    Left out are candidates known to answer wrongly, where they were measured or on the device
    that asks. An index has them in this order: whoever reads a few reads no more.
    """
    asked = {
        "task": task_id,
        "device_exact": device.exact,
        "toolchain_exact": toolchain.exact,
        "device_compatible": device.compatible,
        "toolchain_compatible": toolchain.compatible,
        "tenant": tenant,
    }
    return connection.execute(_fastest_trials(tier), asked)


@cache
def _fastest_trials(tier: Tier) -> Select[Any]:
    """Made once: that takes longer than the query."""

    def is_asking(place: Any) -> ColumnElement[bool]:
        return and_(
            place.device_exact == bindparam("device_exact"),
            place.toolchain_exact == bindparam("toolchain_exact"),
        )

    exact = is_asking(jobs.c)
    compatible = and_(
        jobs.c.device_compatible == bindparam("device_compatible"),
        jobs.c.toolchain_compatible == bindparam("toolchain_compatible"),
        not_(exact),
    )
    wrong, judge = trials.alias("wrong"), jobs.alias("judge")
    same_place = and_(
        judge.c.device_exact == jobs.c.device_exact,
        judge.c.toolchain_exact == jobs.c.toolchain_exact,
    )
    is_wrong: ColumnElement[bool] = exists().where(
        wrong.c.task_id == bindparam("task"),
        wrong.c.failure == FailureKind.WRONG_ANSWER.value,
        wrong.c.candidate_id == trials.c.candidate_id,
        wrong.c.job_id == judge.c.job_id,
        or_(same_place, is_asking(judge.c)),
    )
    return (
        select(trials.c.job_id, *codec.TRIAL)
        .join_from(trials, jobs)
        .join(candidates, candidates.c.key == trials.c.candidate)
        .where(
            trials.c.task_id == bindparam("task"),
            trials.c.latency_s.is_not(None),
            jobs.c.shared == 0,
            seen_by(jobs.c.tenant, bindparam("tenant")),
            exact if tier is Tier.EXACT else compatible,
            not_(is_wrong),
        )
        .order_by(trials.c.latency_s, trials.c.seq)
    )


def fastest_of_tasks(
    operator: str,
    device: DeviceIdentity,
    toolchain: ToolchainIdentity,
    measured: int,
    tenant: str,
) -> Any:
    """(task, shapes, FLOPs, trace, latency) of the fastest trial of each task with at least so
    many, by task id."""
    order = (trials.c.latency_s, trials.c.seq)
    place = func.row_number().over(partition_by=trials.c.task_id, order_by=order)
    count = func.count().over(partition_by=trials.c.task_id)
    fastest = (
        select(trials.c.seq, place.label("place"), count.label("measured"))
        .join_from(trials, jobs)
        .join(tasks, tasks.c.task_id == trials.c.task_id)
        .where(
            tasks.c.operator == operator,
            trials.c.latency_s.is_not(None),
            jobs.c.shared == 0,
            seen_by(jobs.c.tenant, tenant),
            jobs.c.device_compatible == device.compatible,
            jobs.c.toolchain_compatible == toolchain.compatible,
        )
        .subquery()
    )
    return (
        select(
            tasks.c.task_id, tasks.c.shapes, tasks.c.flops, candidates.c.trace, trials.c.latency_s
        )
        .join_from(fastest, trials, fastest.c.seq == trials.c.seq)
        .join(candidates, candidates.c.key == trials.c.candidate)
        .join(tasks, tasks.c.task_id == trials.c.task_id)
        .where(fastest.c.place == 1, fastest.c.measured >= measured)
        .order_by(tasks.c.task_id)
    )


def records(connection: Connection, task_id: str, rows: Sequence[Sequence[Any]]) -> list[Record]:
    """Of rows (job id, columns of a trial or winner); who measured is read once per job."""
    if not rows:
        return []
    measured_by = {job_id for job_id, *_ in rows}
    specs = {
        job_id: codec.spec_of(spec)
        for job_id, spec in connection.execute(
            select(jobs.c.job_id, jobs.c.spec).where(jobs.c.job_id.in_(measured_by))
        )
    }
    records = []
    for job_id, *columns in rows:
        trial, spec = codec.trial_of(columns), specs[job_id]
        assert isinstance(trial.outcome, Measurement)
        records.append(
            Record(task_id, job_id, trial.candidate, trial.outcome, spec.device, spec.toolchain)
        )
    return records


def best_page(
    connection: Connection, operator: str, after: EntryPlace, limit: int, tenant: str
) -> list[BestEntry]:
    """A page of the best-only table: of what several tenants have the fastest."""
    place = tuple_(best.c.task_id, best.c.device_exact, best.c.toolchain_exact)
    query = (
        select(
            tasks, job_tasks.c.name, job_tasks.c.weight, jobs.c.job_id, jobs.c.spec,
            winners.c.checks, *codec.WINNER,
        )
        .join_from(best, winners)
        .join(candidates)
        .join(jobs, jobs.c.job_id == best.c.job_id)
        .join(tasks, tasks.c.task_id == best.c.task_id)
        .join(
            job_tasks,
            and_(job_tasks.c.job_id == best.c.job_id, job_tasks.c.task_id == best.c.task_id),
        )
        .where(
            place > after,
            seen_by(best.c.tenant, tenant),
            *([tasks.c.operator == operator] if operator else ()),
        )
        .order_by(*place, winners.c.latency_s, best.c.tenant)
    )  # fmt: skip
    entries: dict[EntryPlace, BestEntry] = {}
    for row in connection.execute(query).yield_per(limit or 1):
        if len(entries) == limit:
            break
        task, spec = codec.task_of(row).task, codec.spec_of(row.spec)
        trial = codec.trial_of(row[-len(codec.WINNER) :])
        assert isinstance(trial.outcome, Measurement)
        measured_by = (spec.device, spec.toolchain)
        record = Record(task.task_id, row.job_id, trial.candidate, trial.outcome, *measured_by)
        entry = BestEntry(task, spec.target, record, row.checks)
        entries.setdefault(entry.place, entry)
    return list(entries.values())


def enter_best(connection: Connection, job_id: str, task_id: str) -> None:
    """Let its tenant's fastest winner of this job's device and toolchain stand in the best-only
    table.

    Asked of all winners and not only of this one: a job that takes its winner back gives the
    place back to whom it had beaten. Of equals the older job stays, so repetition is idempotent.
    """
    here = connection.execute(
        select(jobs.c.device_exact, jobs.c.toolchain_exact, jobs.c.tenant).where(
            jobs.c.job_id == job_id
        )
    ).one()
    place = {"task_id": task_id, **here._mapping}
    fastest = connection.scalar(
        select(winners.c.job_id)
        .join_from(winners, jobs)
        .where(
            winners.c.task_id == task_id,
            winners.c.latency_s.is_not(None),
            jobs.c.shared == 0,
            jobs.c.device_exact == here.device_exact,
            jobs.c.toolchain_exact == here.toolchain_exact,
            jobs.c.tenant == here.tenant,
        )
        .order_by(winners.c.latency_s, jobs.c.seq)
        .limit(1)
    )
    connection.execute(delete(best).where(*(best.c[name] == v for name, v in place.items())))
    if fastest is not None:
        connection.execute(insert(best).values(job_id=fastest, **place))
