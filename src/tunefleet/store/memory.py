"""A store that forgets: the public fake for tests, simulations and one-off sessions."""

from __future__ import annotations

from tunefleet.store.memory_accounts import MemoryAccounts, MemoryHoldings
from tunefleet.store.memory_coordination import MemoryCoordination
from tunefleet.store.memory_dispatch import MemoryDispatch
from tunefleet.store.memory_events import MemoryEvents
from tunefleet.store.memory_explorer import MemoryExplorer
from tunefleet.store.memory_jobs import MemoryJobs
from tunefleet.store.memory_records import MemoryRecords
from tunefleet.store.memory_state import MemoryState
from tunefleet.store.memory_webhooks import MemoryWebhooks
from tunefleet.store.memory_work import MemoryWork


class MemoryStore:
    """A `Store` in this process; nothing survives."""

    def __init__(self) -> None:
        self._state = MemoryState()
        self.coordination = MemoryCoordination(self._state)
        self.events = MemoryEvents(self._state.entries.__contains__)
        self.jobs = MemoryJobs(self._state, self.coordination, self.events)
        self.work = MemoryWork(self._state, self.coordination)
        self.records = MemoryRecords(self._state)
        self.explorer = MemoryExplorer(self._state)
        self.dispatch = MemoryDispatch(self._state)
        self.accounts = MemoryAccounts(self._state)
        self.holdings = MemoryHoldings(self._state)
        self.webhooks = MemoryWebhooks(self._state)

    def close(self) -> None:
        self._state.close()
