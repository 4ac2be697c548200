"""How a search went on: its curve and what happened last, from the events of its job."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tunefleet.core.events import LaneUpdated, StageCommitted
from tunefleet.runs.run_log import lines_of
from tunefleet.service.values import CurveSample
from tunefleet.store import KeptEvent, Store

_PAGE = 1000
#: Of what happened, that is shown.
_LATEST = 30


@dataclass(frozen=True, slots=True)
class HappenedLine:
    """A line of the log of a job. `at` is in seconds since the epoch."""

    at: float
    text: str
    warning: bool


@dataclass(frozen=True, slots=True)
class JobHistory:
    """`samples` are where the estimate became better, and the last; `seq` is the number of the
    newest event."""

    samples: tuple[CurveSample, ...]
    latest: tuple[HappenedLine, ...]
    seq: int


def history_of(store: Store, job_id: str) -> JobHistory:
    """The latency of the network is estimated by the sum of its tasks' best, with what was known of
    them before, each times how often the network runs it; there is none until each has one."""
    weights = {each.task.task_id: each.weight for each in store.work.tasks(job_id)}
    best_s: dict[str, float] = {}
    trials: dict[str, int] = {}
    samples: list[CurveSample] = []
    latest: deque[HappenedLine] = deque(maxlen=_LATEST)
    elapsed_s, seq = 0.0, 0
    for kept in _events(store, job_id):
        seq = kept.seq
        latest.extend(_lines(kept))
        match kept.event:
            case StageCommitted(elapsed_s=seconds):
                elapsed_s = max(elapsed_s, seconds)
            case LaneUpdated() as lane:
                task_id = lane.weighted.task.task_id
                trials[task_id] = max(lane.trials, trials.get(task_id, 0))
                known = [s for s in (lane.best_s, lane.known_s, best_s.get(task_id)) if s]
                if known:
                    best_s[task_id] = min(known)
                if weights and weights.keys() <= best_s.keys():
                    latency_s = sum(weight * best_s[task] for task, weight in weights.items())
                    _add(samples, sum(trials.values()), elapsed_s, latency_s * 1e3)
    return JobHistory(tuple(samples), tuple(latest), seq)


def _add(samples: list[CurveSample], trials: int, seconds: float, latency_ms: float) -> None:
    """A sample that is no better takes the place of one before it that was none either."""
    flat = len(samples) > 1 and samples[-2].latency_ms == samples[-1].latency_ms == latency_ms
    if flat:
        samples.pop()
    samples.append(CurveSample(trials=trials, seconds=seconds, latency_ms=latency_ms))


def _events(store: Store, job_id: str) -> Iterator[KeptEvent]:
    page = store.events.page(0, [job_id], _PAGE)
    while page:
        yield from page
        page = store.events.page(page[-1].seq, [job_id], _PAGE)


def _lines(kept: KeptEvent) -> Iterator[HappenedLine]:
    if kept.event is None:
        return
    for level, text in lines_of(kept.event):
        if level >= logging.INFO:
            yield HappenedLine(kept.at, text, level >= logging.WARNING)
