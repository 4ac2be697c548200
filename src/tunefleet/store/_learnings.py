"""What cost models learned in the background, and which version searches use."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class LearningOutcome(StrEnum):
    """What came of a version: it ranks records that were held back no worse than the one in use,
    and took its place; it ranks them worse; it forgets what the other knew; there is none, for a
    reason; or a user chose it."""

    NO_WORSE = "no worse"
    WORSE = "worse"
    FORGETS = "forgets"
    FAILED = "failed"
    CHOSEN = "chosen"


@dataclass(frozen=True, slots=True)
class Learning:
    """One time of learning, for the searches of a tenant. `at` is in seconds since the epoch.

    `parent` is the id of the version that was in use, `model` that of the new one ("" where there
    is none), `in_use` that of the one that searches use from then on. `jobs` are those whose
    `records` were new; `held_back` is how many of these ranked, `before` and `after` the metrics
    of both versions on them by name.
    """

    tenant: str
    at: float
    outcome: LearningOutcome
    parent: str
    model: str
    in_use: str
    jobs: tuple[str, ...] = ()
    records: int = 0
    held_back: int = 0
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    reason: str = ""
