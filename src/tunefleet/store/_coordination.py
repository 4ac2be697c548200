"""The contract of coordination between the processes that share a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tunefleet.core.coordination import Claim, ClaimStatus, ControlRequest, Lease, Queued
from tunefleet.errors import LeaseLostError

#: Seconds after which a lease that expired and that nobody else wanted is forgotten.
FORGOTTEN_S = 3600.0


class Coordination(Protocol):
    """Leases on units, and what users ask of jobs.

    **Time** is the store's: that of the server, or the boot clock of the machine whose file it is.
    A claim lives for `ttl_s` seconds from the last call that named it. Claims of an earlier boot
    are over.
    **Order.** A claim has all of its units or none. Of claims that exclude each other the first is
    served first, so nobody waits for ever; one that waits and is not made again in time is dropped.
    **Loss.** A lease that expired is lost when a claim is granted that it excludes, not before: a
    process that was stopped for a while goes on where nobody else came.
    """

    def acquire(self, claim: Claim, ttl_s: float) -> Lease | Queued:
        """The lease of a claim, or who is ahead of it. Call again with the same claim until it is
        granted; of one that is granted it renews the lease."""

    def renew(self, lease: Lease, ttl_s: float) -> None:
        """Keep a lease. Raises LeaseLostError where it is over."""

    def release(self, claim_id: str) -> None:
        """End a claim, granted or not; nothing where there is none."""

    def claims(self) -> list[ClaimStatus]:
        """The claims that live, in the order in which they were made."""

    def ask(self, job_id: str, request: ControlRequest) -> None:
        """Keep what its user wants of a job, also beyond the processes that run it. Raises
        InputError where there is no such job."""

    def wanted(self, job_id: str) -> ControlRequest:
        """What was asked of a job last."""

    def requests(self, job_ids: Sequence[str]) -> dict[str, ControlRequest]:
        """What was asked last of those jobs that are not just to run, by their ids."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim as a store keeps it: `epoch` numbers claims in the order in which they were made;
    times are of the store's clock."""

    epoch: int
    claim: Claim
    granted: bool
    since: float
    expires_at: float

    def status(self, now: float) -> ClaimStatus:
        return ClaimStatus(self.claim, self.granted, now - self.since)

    @property
    def lease(self) -> Lease:
        return Lease(self.claim, self.epoch)


def is_forgotten(entry: Entry, now: float) -> bool:
    """Whether a claim is over whatever others want."""
    return entry.expires_at + (FORGOTTEN_S if entry.granted else 0.0) <= now


def ahead_of(own: Entry, excluded: Sequence[Entry], now: float) -> list[Entry]:
    """Which of the claims that one excludes keep it from being granted."""
    return [
        other
        for other in excluded
        if other.expires_at > now and (other.granted or other.epoch < own.epoch)
    ]


def lost(claim: Claim) -> LeaseLostError:
    return LeaseLostError(
        f"the lease of {', '.join(sorted(claim.units))} is over", cure="run the stage again"
    )
