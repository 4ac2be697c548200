"""The events of jobs in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tunefleet.core.events import Event
from tunefleet.store import rules
from tunefleet.store._events import PAGE, KeptEvent
from tunefleet.store.event_codec import SCHEMA, UNKEPT, event_of, event_value


class MemoryEvents:
    """`Events` of the fake, which says which jobs are known. They are kept as JSON, as in a
    database."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._lock = threading.Lock()
        self._kept: list[KeptEvent] = []
        self._seq = 0

    def append(self, job_id: str, at: float, events: Sequence[Event]) -> None:
        kept = [event for event in events if not isinstance(event, UNKEPT)]
        if kept and not self._is_known(job_id):
            raise rules.unknown_job(job_id)
        with self._lock:
            for event in kept:
                self._seq += 1
                read = event_of(type(event).__name__, SCHEMA, event_value(event))
                self._kept.append(KeptEvent(self._seq, job_id, at, read))

    def page(
        self,
        after: int = 0,
        job_ids: Sequence[str] = (),
        limit: int = PAGE,
        kinds: Sequence[type[Event]] = (),
    ) -> list[KeptEvent]:
        with self._lock:
            wanted = [
                kept
                for kept in self._kept
                if kept.seq > after
                and (not job_ids or kept.job_id in job_ids)
                and (not kinds or isinstance(kept.event, tuple(kinds)))
            ]
        return wanted[:limit]

    def last(self) -> int:
        with self._lock:
            return self._kept[-1].seq if self._kept else 0

    def remove(self, job_id: str) -> None:
        with self._lock:
            self._kept = [kept for kept in self._kept if kept.job_id != job_id]
