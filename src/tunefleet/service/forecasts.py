"""The newest forecast of each running search, for lists of jobs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import astuple

from tunefleet.core.events import Event, Forecasted, JobEnded, SearchEnded
from tunefleet.core.forecast import SearchForecast
from tunefleet.core.job import Job
from tunefleet.service.values import JobForecast
from tunefleet.store import Store

_KINDS: Sequence[type[Event]] = (Forecasted, SearchEnded, JobEnded)
_PAGE = 1000


class NewestForecasts:
    """Reads each event once. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seq = 0
        self._newest: dict[str, JobForecast] = {}

    def of(self, jobs: Sequence[Job]) -> dict[str, JobForecast]:
        """The forecasts of running jobs, by their ids."""
        if not jobs:
            return {}
        with self._lock:
            last = self._store.events.last()
            while page := self._store.events.page(self._seq, (), _PAGE, _KINDS):
                for kept in page:
                    if isinstance(kept.event, Forecasted):
                        shown = _shown(kept.event.forecast, kept.at)
                        if shown is not None:
                            self._newest[kept.job_id] = shown
                    else:
                        self._newest.pop(kept.job_id, None)
                self._seq = page[-1].seq
            self._seq = max(self._seq, last)
            ids = [job.job_id for job in jobs]
            return {name: self._newest[name] for name in ids if name in self._newest}


def _shown(forecast: SearchForecast, at: float) -> JobForecast | None:
    low_s, median_s, high_s = astuple(forecast.latency_s)
    if low_s is None or median_s is None or high_s is None:
        return None
    return JobForecast(
        low_ms=low_s * 1e3,
        median_ms=median_s * 1e3,
        high_ms=high_s * 1e3,
        ends_at=at + max(0.0, forecast.end_s - forecast.elapsed_s),
        probability=forecast.probability,
    )
