"""Tells those who wait that something happened to a job: one look at the store for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

from tunefleet.store import Store

#: Seconds between two looks.
_LOOK_S = 0.2


class News:
    """The jobs of which new events were kept. All in one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look for events within the block."""
        task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @contextlib.contextmanager
    def of(self, job_id: str) -> Iterator[asyncio.Event]:
        """An asyncio event that is set whenever something happened to a job."""
        happened = asyncio.Event()
        self._waiting[job_id].add(happened)
        try:
            yield happened
        finally:
            self._waiting[job_id].discard(happened)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    async def _look(self) -> None:
        after = await asyncio.to_thread(self._store.events.last)
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._waiting:
                after = await asyncio.to_thread(self._store.events.last)
                continue
            page = await asyncio.to_thread(self._store.events.page, after)
            for job_id in {kept.job_id for kept in page}:
                for happened in self._waiting.get(job_id, ()):
                    happened.set()
            after = page[-1].seq if page else after
