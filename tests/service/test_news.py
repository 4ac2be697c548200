from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.store import values as v
from tunefleet.core.events import Note
from tunefleet.service import news as module
from tunefleet.service.news import News
from tunefleet.store import MemoryStore


def tell(store: MemoryStore, job_id: str, *texts: str) -> None:
    store.events.append(job_id, 1.0, [Note(text) for text in texts])


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    for job_id in ("a", "b"):
        store.jobs.open(v.make_spec(job_id), job_id=job_id, now=1.0)
    return store


@pytest.mark.parametrize("remembered", [0, 3, 100])
def test_pages_are_those_of_the_store_however_much_is_remembered(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, remembered: int
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    monkeypatch.setattr(module, "_PAGE", 2)
    monkeypatch.setattr(module, "_REMEMBERED", remembered)
    tell(store, "a", "before")

    async def told() -> None:
        news = News(store)
        async with news.looking():
            with news.of("a") as happened, news.of("b"):
                await asyncio.sleep(0.01)
                tell(store, "a", "1", "2")
                tell(store, "b", "3", "4", "5")
                tell(store, "a", "6")
                while [k.event for k in await news.page("a", 3)] != [Note("6")]:
                    await asyncio.wait_for(happened.wait(), 10)
            for after in range(9):
                for job_id in ("a", "b", "unknown"):
                    kept = store.events.page(after, [job_id], 2)
                    assert kept == await news.page(job_id, after, 2), (after, job_id)

    asyncio.run(told())


def test_who_waits_is_woken_by_their_own_job_alone(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)

    async def told() -> Any:
        news = News(store)
        async with news.looking():
            with news.of("a") as of_a, news.of("b") as of_b:
                await asyncio.sleep(0.01)
                tell(store, "b", "1")
                await asyncio.wait_for(of_b.wait(), 10)
                return of_a.is_set(), of_b.is_set()

    assert asyncio.run(told()) == (False, True)
