"""Stores with stages that ran at chosen times, for the tests of the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.store import values as v
from tunefleet.core.stage import BuildResult, ProfileResult, SelectResult, StageKind, UpdateResult
from tunefleet.store import Store

#: The first stage of most runs here, in seconds since the epoch.
T0 = 1.7e9
MINE, OTHER = "a" * 32, "b" * 32
RESULTS: dict[str, Any] = {
    "select": SelectResult(()),
    "build": BuildResult(()),
    "profile": ProfileResult(()),
    "update": UpdateResult(),
}


def open_job(store: Store, job_id: str = MINE, network: str = "net") -> None:
    store.jobs.open(v.make_spec(network), job_id=job_id, now=T0 - 60.0)
    store.work.put_tasks(job_id, [v.make_task()])


def ran(
    store: Store,
    kind: str,
    start: float,
    end: float,
    *,
    job: str = MINE,
    iteration: int = 0,
    on: str = "",
    attempt: int = 1,
) -> None:
    """Commit a stage that ran from `start` to `end`, seconds after T0."""
    run = v.run_of(
        RESULTS[StageKind(kind)], job, "t", iteration, seconds=end - start, started_at=T0 + start
    )
    store.work.commit(replace(run, resource_id=on, attempt=attempt))


def whole_round(store: Store, start: float, *, job: str = MINE, iteration: int = 0) -> None:
    """Select 2 s, build 1 s, profile 3 s, update 1 s, on host 1 and device 1."""
    times = {"select": (0, 2), "build": (2, 3), "profile": (3, 6), "update": (6, 7)}
    for kind, (begin, end) in times.items():
        on = "device 1" if kind == "profile" else "host 1"
        ran(store, kind, start + begin, start + end, job=job, iteration=iteration, on=on)
