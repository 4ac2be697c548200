"""What was learned in the background, in memory."""

from __future__ import annotations

from tunefleet.store import rules
from tunefleet.store._learnings import Learning
from tunefleet.store.memory_state import MemoryState


class MemoryLearnings:
    """The part of `RecordExplorer` on learning in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._kept: list[Learning] = []

    def add_learning(self, learning: Learning) -> None:
        with self._state.verb():
            self._kept.append(learning)

    def learnings(self, tenant: str, limit: int) -> list[Learning]:
        rules.check_limit(limit)
        with self._state.verb():
            return [each for each in reversed(self._kept) if each.tenant == tenant][:limit]

    def learned(self, tenant: str, job_ids: tuple[str, ...]) -> set[str]:
        with self._state.verb():
            of_all = {job for each in self._kept if each.tenant == tenant for job in each.jobs}
            return of_all & set(job_ids)

    def owners(self, tenant: str) -> set[str]:
        with self._state.verb():
            return self._state.seen_by(tenant)
