"""Coordination within one process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

from tunefleet.core.coordination import Claim, ClaimStatus, ControlRequest, Lease, Queued
from tunefleet.store._coordination import Entry, ahead_of, is_forgotten, lost
from tunefleet.store.memory_state import MemoryState


class MemoryCoordination:
    """`Coordination` in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._epochs = itertools.count(1)
        self._entries: dict[str, Entry] = {}
        self._requests: dict[str, ControlRequest] = {}

    def acquire(self, claim: Claim, ttl_s: float) -> Lease | Queued:
        with self._state.verb():
            now = time.monotonic()
            own = self._entries.get(claim.claim_id)
            if own is None or (not own.granted and is_forgotten(own, now)):
                own = Entry(next(self._epochs), claim, False, now, now)
            own = replace(own, expires_at=now + ttl_s)
            excluded = [e for e in self._entries.values() if claim.excludes(e.claim)]
            ahead = [] if own.granted else ahead_of(own, excluded, now)
            if not ahead and not own.granted:
                for other in excluded:
                    if other.granted:
                        del self._entries[other.claim.claim_id]
                own = replace(own, granted=True, since=now)
            self._entries = {
                name: e for name, e in self._entries.items() if not is_forgotten(e, now)
            }
            self._entries[claim.claim_id] = own
            return Queued(tuple(e.status(now) for e in ahead)) if ahead else own.lease

    def renew(self, lease: Lease, ttl_s: float) -> None:
        with self._state.verb():
            self.check_current(lease)
            own = self._entries[lease.claim.claim_id]
            renewed = replace(own, expires_at=time.monotonic() + ttl_s)
            self._entries[lease.claim.claim_id] = renewed

    def release(self, claim_id: str) -> None:
        with self._state.verb():
            self._entries.pop(claim_id, None)

    def claims(self) -> list[ClaimStatus]:
        with self._state.verb():
            now = time.monotonic()
            alive = [e for e in self._entries.values() if e.expires_at > now]
            return [e.status(now) for e in sorted(alive, key=lambda e: e.epoch)]

    def ask(self, job_id: str, request: ControlRequest) -> None:
        with self._state.verb():
            self._state.entry(job_id)
            self._requests[job_id] = request

    def wanted(self, job_id: str) -> ControlRequest:
        with self._state.verb():
            return self._requests.get(job_id, ControlRequest.RUN)

    def requests(self, job_ids: Sequence[str]) -> dict[str, ControlRequest]:
        with self._state.verb():
            asked = {i: self._requests[i] for i in job_ids if i in self._requests}
            return {i: request for i, request in asked.items() if request is not ControlRequest.RUN}

    def check_current(self, lease: Lease) -> None:
        """Raises LeaseLostError; within a verb."""
        own = self._entries.get(lease.claim.claim_id)
        if own is None or not own.granted or own.epoch != lease.epoch:
            raise lost(lease.claim)

    def forget(self, job_id: str) -> None:
        """What was asked of a job that is removed; within a verb."""
        self._requests.pop(job_id, None)
