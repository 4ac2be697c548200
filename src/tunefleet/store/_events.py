"""The contract of the events that a store keeps of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tunefleet.core.events import Event

#: Most events of a page.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """`seq` grows in the order in which events were kept, over all jobs; `at` is when, in seconds
    since the epoch. `event` is None where a newer version wrote it."""

    seq: int
    job_id: str
    at: float
    event: Event | None

    def to_json(self) -> dict[str, Any]:
        """With the kind of the event and what it says."""
        from tunefleet.store.event_codec import event_value

        head = {"seq": self.seq, "job": self.job_id, "at": self.at}
        if self.event is None:
            return {**head, "event": None}
        return {**head, "event": type(self.event).__name__, **event_value(self.event)}


class Events(Protocol):
    """What happened to jobs, in its order. They are removed with their job.

    What is kept is what can be shown again: of a stage that was committed its key, times and
    resource, whose result the store has; tasks without their programs.
    """

    def append(self, job_id: str, at: float, events: Sequence[Event]) -> None:
        """Keep events of a job; nothing of those that only say how far a stage is. Survives a
        killed process, not a power failure. Raises InputError for a job that is unknown."""

    def page(
        self,
        after: int = 0,
        job_ids: Sequence[str] = (),
        limit: int = PAGE,
        kinds: Sequence[type[Event]] = (),
    ) -> list[KeptEvent]:
        """The first events behind a number, of some jobs and kinds or of all."""

    def last(self) -> int:
        """The number of the newest event; 0 without any."""
