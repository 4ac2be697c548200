"""The history of a search, from the events of its job: its tasks, its curve and the latest
events."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

from tunefleet.core.events import (
    Forecasted,
    JobEnded,
    LaneUpdated,
    SearchEnded,
    StageCommitted,
)
from tunefleet.core.forecast import SearchForecast
from tunefleet.core.task import WeightedTask
from tunefleet.runs.run_log import lines_of
from tunefleet.service.values import CurveForecast, CurveSample
from tunefleet.store import KeptEvent, Store

_PAGE = 1000
#: Log lines that are shown; jobs whose histories are cached.
_LATEST, _MOST_JOBS = 30, 200


@dataclass(frozen=True, slots=True)
class HappenedLine:
    """A line of the log of a job. `at` is in seconds since the epoch."""

    at: float
    text: str
    warning: bool


@dataclass(frozen=True, slots=True)
class SearchedTask:
    """A task without its program, and this job's trials of it; `best_s` is the best latency so
    far, including results of earlier jobs."""

    weighted: WeightedTask
    trials: int = 0
    failed: int = 0
    best_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """`samples` are the improvements of the estimate, and the last value; `forecast` is the
    newest of a running search; `seq` is the number of the newest event."""

    tasks: tuple[SearchedTask, ...]
    samples: tuple[CurveSample, ...]
    forecast: CurveForecast | None
    latest: tuple[HappenedLine, ...]
    seq: int


class JobHistories:
    """The histories of jobs. Those requested recently are updated from new events alone.
    Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, _Reader] = OrderedDict()

    def of(self, job_id: str) -> JobHistory:
        """The history of a job until now."""
        with self._lock:
            reader = self._readers.pop(job_id, None) or _Reader(self._store, job_id)
            self._readers[job_id] = reader
            if len(self._readers) > _MOST_JOBS:
                self._readers.popitem(last=False)
        return reader.read()


class _Reader:
    """Estimates the latency of a network as the sum of the best latencies of its tasks,
    including earlier results, each times its weight. There is no estimate until each task has
    one."""

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._lock = threading.Lock()
        self._tasks: dict[str, SearchedTask] = {}
        self._known_s: dict[str, float] = {}
        self._samples: list[CurveSample] = []
        self._forecast: CurveForecast | None = None
        self._latest: deque[HappenedLine] = deque(maxlen=_LATEST)
        self._elapsed_s = 0.0
        self._seq = 0

    def read(self) -> JobHistory:
        with self._lock:
            if not self._tasks:
                self._read_tasks()
            while page := self._store.events.page(self._seq, [self._job_id], _PAGE):
                for kept in page:
                    self._take(kept)
                self._seq = page[-1].seq
            tasks, samples = tuple(self._tasks.values()), tuple(self._samples)
            return JobHistory(tasks, samples, self._forecast, tuple(self._latest), self._seq)

    def _read_tasks(self) -> None:
        for each in self._store.work.tasks(self._job_id):
            weighted = replace(each, task=replace(each.task, program=""))
            self._tasks[each.task.task_id] = SearchedTask(weighted)

    def _take(self, kept: KeptEvent) -> None:
        self._latest.extend(_lines(kept))
        match kept.event:
            case StageCommitted(elapsed_s=seconds):
                self._elapsed_s = max(self._elapsed_s, seconds)
            case Forecasted(forecast):
                self._forecast = _at_end(forecast)
            case SearchEnded() | JobEnded():
                self._forecast = None
            case LaneUpdated() as lane:
                if not self._tasks:
                    self._read_tasks()
                self._take_lane(lane)

    def _take_lane(self, lane: LaneUpdated) -> None:
        task_id = lane.weighted.task.task_id
        if task_id not in self._tasks:
            return
        old = self._tasks[task_id]
        self._tasks[task_id] = replace(
            old, trials=lane.trials, failed=lane.failed, best_s=lane.best_s
        )
        known = [s for s in (lane.best_s, lane.known_s, self._known_s.get(task_id)) if s]
        if known:
            self._known_s[task_id] = min(known)
        if len(self._known_s) == len(self._tasks):
            trials = sum(each.trials for each in self._tasks.values())
            weights = {name: each.weighted.weight for name, each in self._tasks.items()}
            latency_s = sum(weights[name] * best_s for name, best_s in self._known_s.items())
            self._add(trials, latency_s * 1e3)

    def _add(self, trials: int, latency_ms: float) -> None:
        """Add a sample. One without improvement replaces the one before it if that had none
        either."""
        latest = self._samples[-2:]
        if len(latest) == 2 and all(each.latency_ms == latency_ms for each in latest):
            self._samples.pop()
        sample = CurveSample(trials=trials, seconds=self._elapsed_s, latency_ms=latency_ms)
        self._samples.append(sample)


def _at_end(forecast: SearchForecast) -> CurveForecast | None:
    low_s, median_s, high_s = astuple(forecast.latency_s)
    if low_s is None or median_s is None or high_s is None:
        return None
    return CurveForecast(
        trials=forecast.end_trials,
        seconds=forecast.end_s,
        low_ms=low_s * 1e3,
        median_ms=median_s * 1e3,
        high_ms=high_s * 1e3,
        probability=forecast.probability,
    )


def _lines(kept: KeptEvent) -> Iterator[HappenedLine]:
    if kept.event is None:
        return
    for level, text in lines_of(kept.event):
        if level >= logging.INFO:
            yield HappenedLine(kept.at, text, level >= logging.WARNING)
