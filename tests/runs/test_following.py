from __future__ import annotations

from tests.store.values import make_spec
from tunefleet.core.events import JobEnded, JobOpened, Note
from tunefleet.core.phases import NO_FORECAST
from tunefleet.runs.following import events_of, goes_on_after, last_opened
from tunefleet.store import MemoryStore

OPENED = JobOpened("job", False, make_spec().budget, 0.0, NO_FORECAST)


def store_of_job() -> MemoryStore:
    store = MemoryStore()
    store.jobs.open(make_spec(), job_id="job", now=1.0)
    store.events.append("job", 1.0, [OPENED, Note("one")])
    return store


def test_events_are_followed_to_the_end_of_the_job() -> None:
    store = store_of_job()

    def goes_on() -> bool:
        store.events.append("job", 2.0, [Note("two"), JobEnded()])
        return True

    told = [kept.event for kept in events_of(store, ["job"], 0, goes_on)]
    assert told == [OPENED, Note("one"), Note("two"), JobEnded()]


def test_what_a_process_tells_before_it_is_gone_is_not_missed() -> None:
    store = store_of_job()

    def goes_on() -> bool:
        store.events.append("job", 2.0, [Note("the last word")])
        return False

    told = [kept.event for kept in events_of(store, ["job"], 1, goes_on)]
    assert told == [Note("one"), Note("the last word")]


def test_who_gives_a_job_again_does_not_hear_that_it_failed_before() -> None:
    store = store_of_job()
    assert (last_opened(store, "job"), goes_on_after(store, "job")) == (0, 0)
    store.events.append("job", 2.0, [JobEnded("it failed", "JobError")])
    assert (last_opened(store, "job"), goes_on_after(store, "job")) == (0, 3)
    store.events.append("job", 3.0, [OPENED, Note("again")])
    assert (last_opened(store, "job"), goes_on_after(store, "job")) == (3, 3)
