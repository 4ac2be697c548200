"""What happens to jobs, whoever works on them: the events that the store keeps, as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import Event, JobEnded, JobOpened, Observer
from tunefleet.core.home import Home
from tunefleet.core.job import Job, JobState
from tunefleet.fleet.leases import jobs_held
from tunefleet.fleet.server_socket import ServerRequest, ask
from tunefleet.runs.timeline import find_job
from tunefleet.store import KeptEvent, Store, open_store

#: Seconds between two looks for events, and between two whether anybody works on a job.
_LOOK_S, _ALIVE_S = 0.2, 2.0
#: Seconds for which whoever watches a job waits for the next server, where one has ended.
_PATIENCE_S = 60.0


def events_of(
    store: Store, job_ids: Sequence[str], after: int, goes_on: Callable[[], bool]
) -> Iterator[KeptEvent]:
    """The events of jobs behind a number, until all have ended. `goes_on` is asked now and then
    where nothing comes; where it says no, nothing is waited for."""
    pending = set(job_ids)
    next_look, alive = 0.0, True
    while True:
        page = store.events.page(after, job_ids)
        for kept in page:
            after = kept.seq
            if isinstance(kept.event, JobEnded):
                pending.discard(kept.job_id)
            elif isinstance(kept.event, JobOpened):
                pending.add(kept.job_id)
            yield kept
        if page:
            continue
        if not pending or not alive:
            return
        if time.monotonic() >= next_look:
            alive = goes_on()
            next_look = time.monotonic() + _ALIVE_S
        if alive:  # else what was kept before it ended is read first
            time.sleep(_LOOK_S)


def last_opened(store: Store, job_id: str) -> int:
    """The number before the event by which a job was taken up the last time; 0 where it never
    was."""
    return max(0, _last(store, job_id, JobOpened) - 1)


def goes_on_after(store: Store, job_id: str) -> int:
    """The number behind which an open job goes on: where it ended with an error, that is over."""
    return max(last_opened(store, job_id), _last(store, job_id, JobEnded))


def _last(store: Store, job_id: str, kind: type[Event]) -> int:
    """The number of the last event of a kind; 0 without any."""
    last, after = 0, 0
    while page := store.events.page(after, [job_id]):
        last = next((kept.seq for kept in reversed(page) if isinstance(kept.event, kind)), last)
        after = page[-1].seq
    return last


def watch_jobs(home: Path, names: Sequence[str], after: int = 0) -> Iterator[dict[str, Any]]:
    """The events of jobs behind a number, as JSON values: the `seq` of each, its `job`, when (`at`,
    seconds since the epoch), its kind (`event`) and what it says. Ends with the jobs, or where
    nobody works on them. Raises InputError for a job that is unknown."""
    store = open_store(home)
    try:
        ids = [find_job(store, name).job_id for name in names]
        for kept in events_of(store, ids, after, _Patience(home, store, ids)):
            yield kept.to_json()
    finally:
        store.close()


def watched_networks(home: Path, names: Sequence[str]) -> list[str]:
    """The networks of jobs, with the id of the job where several are of one network. Raises
    InputError for a job that is unknown."""
    with closing(open_store(home)) as store:
        jobs = [find_job(store, name) for name in names]
    networks = [job.spec.network.name for job in jobs]
    return [
        name if networks.count(name) == 1 else f"{name} {job.job_id[:8]}"
        for name, job in zip(networks, jobs, strict=True)
    ]


def show_jobs(
    home: Path, names: Sequence[str], observer: Callable[[int], Observer]
) -> dict[str, str]:
    """Tell observers, by the index of their job, what happened to jobs since they were taken up the
    last time, and what happens; returns the state of each, by its name."""
    store = open_store(home)
    try:
        jobs = [find_job(store, name) for name in names]
        ids = [job.job_id for job in jobs]
        observers = {job_id: observer(index) for index, job_id in enumerate(ids)}
        opened = {job_id: last_opened(store, job_id) for job_id in ids}
        for kept in events_of(store, ids, min(opened.values()), _Patience(home, store, ids)):
            if kept.event is not None and kept.seq > opened[kept.job_id]:
                observers[kept.job_id](kept.event)
        return {name: _state(store, job_id) for name, job_id in zip(names, ids, strict=True)}
    finally:
        store.close()


class _Patience:
    """Whether it is worth waiting for what happens to jobs: a process works on one, or a server
    will soon."""

    def __init__(self, home: Path, store: Store, job_ids: Sequence[str]) -> None:
        self._home = home
        self._store = store
        self._job_ids = job_ids
        self._until = time.monotonic() + _PATIENCE_S

    def __call__(self) -> bool:
        held = jobs_held(self._store.coordination)
        jobs = [_job(self._store, job_id) for job_id in self._job_ids]
        going = [job for job in jobs if job is not None and job.state is JobState.RUNNING]
        if any(job.spec.fingerprint in held for job in going):
            self._until = time.monotonic() + _PATIENCE_S
            return True
        wanted = self._store.coordination.wanted
        served = [
            job
            for job in going
            if job.spec.terms.served and wanted(job.job_id) is not ControlRequest.PAUSE
        ]
        if served and ask(Home(self._home), ServerRequest("hello")) is not None:
            self._until = time.monotonic() + _PATIENCE_S
        return bool(served) and time.monotonic() < self._until


def _job(store: Store, job_id: str) -> Job | None:
    return next(iter(store.jobs.page(prefix=job_id, limit=1)), None)


def _state(store: Store, job_id: str) -> str:
    job = _job(store, job_id)
    return "removed" if job is None else str(job.state)
