"""What processes that share a store agree on: who uses which units, what users ask of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ControlRequest(StrEnum):
    """What a user asks of a job that runs. RUN is what is wanted of one that nothing was asked
    of."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for ever: `space` is where its number is known, this boot of a machine or of a
    container; `started` is when it started there, since numbers are given again."""

    host: str
    space: str
    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who claims units, and what for. `expected_s`: seconds that it will keep them, if known."""

    process: ProcessIdentity
    owner: str = ""
    job_id: str = ""
    purpose: str = ""
    expected_s: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """`claim_id` is given by the holder: the same claim is made again until it is granted. Claims
    of one unit exclude each other unless both are `shared`."""

    claim_id: str
    units: frozenset[str]
    holder: Holder
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError(f"claim {self.claim_id} names no unit")

    def excludes(self, other: Claim) -> bool:
        """Whether only one of two claims can be granted."""
        if self.claim_id == other.claim_id or (self.shared and other.shared):
            return False
        return not self.units.isdisjoint(other.units)


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted claim. `epoch` is larger than that of every lease of one of its units before."""

    claim: Claim
    epoch: int


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """A claim that lives: `seconds` since it was granted, or since it waits."""

    claim: Claim
    granted: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Queued:
    """A claim that is not granted yet. `ahead`: those that exclude it and are granted, or wait
    since earlier, in the order in which they were made."""

    ahead: tuple[ClaimStatus, ...]
