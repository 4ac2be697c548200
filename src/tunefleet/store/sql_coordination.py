"""Coordination of the processes that share a database."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, case, delete, insert, or_, select, update

from tunefleet.core.coordination import Claim, ClaimStatus, ControlRequest, Lease, Queued
from tunefleet.store import codec, rules
from tunefleet.store._coordination import FORGOTTEN_S, Entry, ahead_of, is_forgotten, lost
from tunefleet.store.database import Database
from tunefleet.store.schema import claim_units, claims, jobs, requests
from tunefleet.system.processes import boot_id, boot_seconds


class SqlCoordination:
    """A `Coordination` in a file of this machine, by its boot clock."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(self, claim: Claim, ttl_s: float) -> Lease | Queued:
        with self._database.coordinating() as connection:
            now = boot_seconds()
            own = _entry(connection, claim.claim_id)
            if own is None or (not own.granted and is_forgotten(own, now)):
                own = _made(connection, claim, now)
            own = replace(own, expires_at=now + ttl_s)
            excluded = _excluded(connection, claim)
            ahead = [] if own.granted else ahead_of(own, excluded, now)
            if not ahead and not own.granted:
                for other in excluded:
                    if other.granted:
                        _end(connection, other.claim.claim_id)
                own = replace(own, granted=True, since=now)
            connection.execute(
                update(claims)
                .where(claims.c.seq == own.epoch)
                .values(granted=int(own.granted), since=own.since, expires_at=own.expires_at)
            )
            _forget(connection, now)
            return Queued(tuple(e.status(now) for e in ahead)) if ahead else own.lease

    def renew(self, lease: Lease, ttl_s: float) -> bool:
        with self._database.coordinating() as connection:
            check_current(connection, lease)
            now = boot_seconds()
            own = update(claims).where(claims.c.seq == lease.epoch)
            connection.execute(own.values(expires_at=now + ttl_s))
            return any(other.expires_at > now for other in _excluded(connection, lease.claim))

    def release(self, claim_id: str) -> None:
        with self._database.coordinating() as connection:
            _end(connection, claim_id)

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


def check_current(connection: Connection, lease: Lease) -> None:
    """Raises LeaseLostError; within a transaction."""
    own = _entry(connection, lease.claim.claim_id)
    if own is None or not own.granted or own.epoch != lease.epoch:
        raise lost(lease.claim)


def _entry(connection: Connection, claim_id: str) -> Entry | None:
    query = select(claims).where(claims.c.claim_id == claim_id, claims.c.boot == boot_id())
    row = connection.execute(query).one_or_none()
    return None if row is None else codec.claim_of(row)


def _made(connection: Connection, claim: Claim, now: float) -> Entry:
    """A claim that waits, in place of one that is over."""
    _end(connection, claim.claim_id)
    row = codec.claim_row(claim, boot_id(), now)
    seq = connection.execute(insert(claims).values(row).returning(claims.c.seq)).scalar_one()
    units = [{"unit": unit, "claim": seq} for unit in sorted(claim.units)]
    connection.execute(insert(claim_units), units)
    return Entry(seq, claim, False, now, now)


def _excluded(connection: Connection, claim: Claim) -> list[Entry]:
    """The claims of this boot that a claim excludes."""
    of_units = select(claim_units.c.claim).where(claim_units.c.unit.in_(claim.units))
    query = (
        select(claims)
        .where(claims.c.seq.in_(of_units), claims.c.boot == boot_id())
        .order_by(claims.c.seq)
    )
    entries = [codec.claim_of(row) for row in connection.execute(query)]
    return [entry for entry in entries if claim.excludes(entry.claim)]


def _end(connection: Connection, claim_id: str) -> None:
    own = select(claims.c.seq).where(claims.c.claim_id == claim_id)
    connection.execute(delete(claim_units).where(claim_units.c.claim.in_(own)))
    connection.execute(delete(claims).where(claims.c.claim_id == claim_id))


def _forget(connection: Connection, now: float) -> None:
    """Remove claims that are over whatever others want."""
    kept_until = claims.c.expires_at + case((claims.c.granted == 1, FORGOTTEN_S), else_=0.0)
    over = or_(claims.c.boot != boot_id(), kept_until <= now)
    seqs = select(claims.c.seq).where(over)
    connection.execute(delete(claim_units).where(claim_units.c.claim.in_(seqs)))
    connection.execute(delete(claims).where(over))
