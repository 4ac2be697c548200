"""Coordination of the processes that share a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, delete, insert, select, update

from tunefleet.core.coordination import Claim, ClaimStatus, ControlRequest, Lease, Queued
from tunefleet.store import codec, rules
from tunefleet.store._coordination import Entry, ahead_of, is_forgotten, lost
from tunefleet.store.database import Database
from tunefleet.store.schema import claims, jobs, requests
from tunefleet.system.processes import boot_id, boot_seconds


class SqlCoordination:
    """A `Coordination` in a file of this machine, by its boot clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, claim: Claim, ttl_s: float) -> Lease | Queued:
        with self._database.coordinating() as connection:
            now = boot_seconds()
            entries = _kept(connection, now)
            own = next((e for e in entries if e.claim.claim_id == claim.claim_id), None)
            if own is None:
                own = Entry(_enter(connection, claim, now), claim, False, now, now)
            excluded = [entry for entry in entries if claim.excludes(entry.claim)]
            ahead = [] if own.granted else ahead_of(own, excluded, now)
            if not ahead and not own.granted:
                _end(connection, [entry.epoch for entry in excluded if entry.granted])
                own = replace(own, granted=True, since=now)
            connection.execute(
                update(claims)
                .where(claims.c.seq == own.epoch)
                .values(granted=int(own.granted), since=own.since, expires_at=now + ttl_s)
            )
            return Queued(tuple(e.status(now) for e in ahead)) if ahead else own.lease

    def renew(self, lease: Lease, ttl_s: float) -> None:
        with self._database.coordinating() as connection:
            check_current(connection, lease)
            own = update(claims).where(claims.c.seq == lease.epoch)
            connection.execute(own.values(expires_at=boot_seconds() + ttl_s))

    def release(self, claim_id: str) -> None:
        with self._database.coordinating() as connection:
            connection.execute(delete(claims).where(claims.c.claim_id == claim_id))

    def claims(self) -> list[ClaimStatus]:
        now = boot_seconds()
        alive = select(claims).where(claims.c.boot == boot_id(), claims.c.expires_at > now)
        with self._database.reading() as connection:
            rows = connection.execute(alive.order_by(claims.c.seq))
            return [codec.claim_of(row).status(now) for row in rows]

    def ask(self, job_id: str, request: ControlRequest) -> None:
        with self._database.writing() as connection:
            if connection.scalar(select(jobs.c.seq).where(jobs.c.job_id == job_id)) is None:
                raise rules.unknown_job(job_id)
            connection.execute(delete(requests).where(requests.c.job_id == job_id))
            if request is not ControlRequest.RUN:
                row = {"job_id": job_id, "request": request.value}
                connection.execute(insert(requests).values(row))

    def wanted(self, job_id: str) -> ControlRequest:
        with self._database.reading() as connection:
            query = select(requests.c.request).where(requests.c.job_id == job_id)
            request = connection.scalar(query)
            return ControlRequest.RUN if request is None else codec.request_of(request)

    def requests(self, job_ids: Sequence[str]) -> dict[str, ControlRequest]:
        query = select(requests.c.job_id, requests.c.request).where(requests.c.job_id.in_(job_ids))
        with self._database.reading() as connection:
            return {job_id: codec.request_of(text) for job_id, text in connection.execute(query)}


def check_current(connection: Connection, lease: Lease) -> None:
    """Raises LeaseLostError; within a transaction."""
    query = select(claims).where(claims.c.seq == lease.epoch, claims.c.boot == boot_id())
    row = connection.execute(query).one_or_none()
    own = None if row is None else codec.claim_of(row)
    if own is None or not own.granted or own.claim.claim_id != lease.claim.claim_id:
        raise lost(lease.claim)


def _kept(connection: Connection, now: float) -> list[Entry]:
    """All claims that are not over whatever others want; the others are removed. There are as many
    as processes have stages."""
    kept, over = [], []
    for row in connection.execute(select(claims).order_by(claims.c.seq)):
        entry = codec.claim_of(row)
        if row.boot != boot_id() or is_forgotten(entry, now):
            over.append(entry.epoch)
        else:
            kept.append(entry)
    _end(connection, over)
    return kept


def _enter(connection: Connection, claim: Claim, now: float) -> int:
    """The row of a claim that waits."""
    row = codec.claim_row(claim, boot_id(), now)
    inserted = insert(claims).values(row).returning(claims.c.seq)
    return int(connection.execute(inserted).scalar_one())


def _end(connection: Connection, seqs: Sequence[int]) -> None:
    if seqs:
        connection.execute(delete(claims).where(claims.c.seq.in_(seqs)))
