"""Notifies waiting requests of new events: one look at the store serves all of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from itertools import islice

from tunefleet.errors import RetryElsewhereError
from tunefleet.store import KeptEvent, Store

#: Seconds between two polls, and the number of cached events.
_LOOK_S, _REMEMBERED = 0.2, 5000
_PAGE = 1000


class News:
    """The latest events of all jobs, and the requests that wait for more. For one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        #: All events after `_begin` up to the last poll, also by their jobs.
        self._latest: deque[KeptEvent] = deque()
        self._of_job: defaultdict[str, deque[KeptEvent]] = defaultdict(deque)
        self._begin: float = float("inf")

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Poll the store within the block."""
        task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @contextlib.contextmanager
    def of(self, job_id: str) -> Iterator[asyncio.Event]:
        """An asyncio event that is set at each new event of a job."""
        happened = asyncio.Event()
        self._waiting[job_id].add(happened)
        try:
            yield happened
        finally:
            self._waiting[job_id].discard(happened)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    async def page(self, job_id: str, after: int, limit: int = _PAGE) -> list[KeptEvent]:
        """The first events of a job after a number, up to the last poll at least; the store is
        read for those that are not cached."""
        if after < self._begin:
            return await asyncio.to_thread(self._store.events.page, after, [job_id], limit)
        of_job = self._of_job.get(job_id, ())
        return list(islice((kept for kept in of_job if kept.seq > after), limit))

    async def _look(self) -> None:
        after = await self._forget()
        while True:
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(RetryElsewhereError):
                after = await (self._read(after) if self._waiting else self._forget())

    async def _read(self, after: int) -> int:
        """Cache the events since the last poll and notify the waiting requests. Returns the
        number of the last event."""
        is_full = True
        while is_full:
            page = await asyncio.to_thread(self._store.events.page, after, (), _PAGE)
            is_full = len(page) == _PAGE
            after = page[-1].seq if page else after
            for kept in page:
                self._latest.append(kept)
                self._of_job[kept.job_id].append(kept)
            while len(self._latest) > _REMEMBERED:
                self._drop()
            for job_id in {kept.job_id for kept in page}:
                for happened in self._waiting.get(job_id, ()):
                    happened.set()
        return after

    async def _forget(self) -> int:
        """Clear the cache. Returns the number of the newest event."""
        last = await asyncio.to_thread(self._store.events.last)
        self._latest.clear()
        self._of_job.clear()
        self._begin = last
        return last

    def _drop(self) -> None:
        oldest = self._latest.popleft()
        self._begin = oldest.seq
        of_job = self._of_job[oldest.job_id]
        of_job.popleft()
        if not of_job:
            del self._of_job[oldest.job_id]
