"""When a job that is entered now would begin and end, beside those that are under way.

As many stages run at once as did lately. Owners have shares of that by the priorities of their
jobs, and the jobs of one owner equal parts of its share. What is left of a search follows from the
seconds of its stages so far, else from earlier runs of its network, else from the rounds of the
others; its delivery takes what it took in earlier runs. Imports and checks go before all searches;
deliveries follow one another in the order in which the searches end.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.job import Job, JobState
from tunefleet.core.stage import StageKind, StageSpan
from tunefleet.core.step import StepKey, StepKind
from tunefleet.fleet.leases import is_over
from tunefleet.runs.forecast import EarlierRuns
from tunefleet.store import Store

#: Jobs that are looked at; where there are more nothing is said of an end.
_MOST = 50
#: Stages are looked at so far back, in seconds.
_LATELY_S = 1200.0
#: Seconds for which what recent stages say is kept.
_KEPT_S = 10.0
#: Work that is only rounding, in seconds.
_NOTHING_S = 1e-6


@dataclass(frozen=True, slots=True)
class QueueEstimate:
    """`jobs` are under way beside it, on its device where it is known; 50 stands for more.
    Times are seconds since the epoch; without a job `ends_at` is when the last of the others ends.
    None where what is known does not say."""

    jobs: int
    starts_at: float
    ends_at: float | None


@dataclass(frozen=True, slots=True)
class SharedWork:
    """What is left of a job: seconds of its stages, or (`is_timed`) seconds in which any of them
    runs. Its owner has a share of `weight`; what is `urgent` goes first.
    `before_s` is left of its import and check; `after_s` is its delivery."""

    seconds: float
    is_timed: bool = False
    owner: str = ""
    weight: float = 1.0
    urgent: bool = False
    before_s: float = 0.0
    after_s: float = 0.0


class QueueEstimator:
    """Estimates of the jobs of a store. What recent stages and earlier runs say is read once in
    some seconds, by one thread for all: many users submit at once. Threads share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._searches: _Searches | None = None

    def estimate(self, now: float, job: Job | None = None) -> QueueEstimate:
        """For a job that was entered just now; without one, of those that are under way."""
        store = self._store
        others = _under_way(store, job)
        starts_at = now + _wait_s(store)
        if len(others) >= _MOST:
            return QueueEstimate(len(others), starts_at, None)
        with self._lock:
            ends_at = self._ends_at(now, starts_at, others, job)
        return QueueEstimate(len(others), starts_at, ends_at)

    def _ends_at(
        self, now: float, starts_at: float, others: Sequence[Job], job: Job | None
    ) -> float | None:
        if self._searches is None or now - self._searches.now > _KEPT_S:
            self._searches = _Searches(self._store, now)
        searches = self._searches
        works = searches.works(others)
        known = [work for work in works if work is not None]
        if len(known) < len(works):
            return None
        if job is None:
            ends = delivered_s(known, searches.at_once)
            return now + max(ends) if ends else None
        [own] = searches.works([job])
        if own is None or searches.earlier.of(job.spec).around_search_s(prepared=False) is None:
            return None
        return starts_at + delivered_s([*known, own], searches.at_once)[-1]


def _is_prepared(store: Store, job: Job) -> bool:
    """Whether the network of a job is imported and checked."""
    if job.spec.source is None:
        return False
    return store.work.step(StepKey(job.spec.preparation.id, StepKind.CHECK)) is not None


def delivered_s(works: Sequence[SharedWork], at_once: float) -> list[float]:
    """Seconds until each of works is delivered."""
    before_s = sum(work.before_s for work in works)
    searched_s = [before_s + finished_s(n, works, at_once) for n in range(len(works))]
    ends, free_s = [0.0] * len(works), 0.0
    for n in sorted(range(len(works)), key=searched_s.__getitem__):
        free_s = max(free_s, searched_s[n]) + works[n].after_s
        ends[n] = free_s
    return ends


def finished_s(which: int, works: Sequence[SharedWork], at_once: float) -> float:
    """Seconds until the search of one of works ends where so many stages of them run at once."""
    left = [work.seconds for work in works]
    going, time_s = set(range(len(works))), 0.0
    while which in going:
        rates = {
            n: min(at_once * share, 1.0 if works[n].is_timed else math.inf)
            for n, share in _shares(works, going).items()
        }
        step_s = max(0.0, min(left[n] / rate for n, rate in rates.items()))
        time_s += step_s
        for n, rate in rates.items():
            left[n] -= step_s * rate
        going = {n for n in going if left[n] > _NOTHING_S}
    return time_s


def _shares(works: Sequence[SharedWork], going: set[int]) -> Mapping[int, float]:
    """The part of all stages that each work has that goes on."""
    urgent = [n for n in going if works[n].urgent]
    among = urgent or going
    jobs = Counter(works[n].owner for n in among)
    weights = {works[n].owner: 0.0 for n in among}
    for n in among:
        weights[works[n].owner] = max(weights[works[n].owner], works[n].weight)
    whole = sum(weights.values())
    return {n: weights[works[n].owner] / whole / jobs[works[n].owner] for n in among}


class _Searches:
    """What the stages that ran lately, and earlier runs, say of searches. `at_once`: how many of
    those ran at once while any did."""

    def __init__(self, store: Store, now: float) -> None:
        self.earlier = EarlierRuns(store)
        self._store = store
        self.now = now
        spans = store.work.stages_between(now - _LATELY_S, now)
        self.at_once = stages_at_once(spans)
        self._worked_s: defaultdict[str, float] = defaultdict(float)
        self._rounds = Counter[str]()
        for span in spans:
            self._worked_s[span.key.job_id] += span.seconds
            self._rounds[span.key.job_id] += span.key.kind is StageKind.PROFILE

    def works(self, jobs: Sequence[Job]) -> list[SharedWork | None]:
        """What is left of jobs; None where nothing says so."""
        outcomes = self._store.jobs.outcomes([job.job_id for job in jobs])
        return [self._work(job, outcomes[job.job_id].trials) for job in jobs]

    def _work(self, job: Job, done: int) -> SharedWork | None:
        budget, terms = job.spec.budget, job.spec.terms
        urgent = terms.deadline is not None and terms.deadline > self.now
        forecast = self.earlier.of(job.spec)
        after_s = forecast.around_search_s(prepared=True) or 0.0
        around_s = forecast.around_search_s(prepared=done > 0 or _is_prepared(self._store, job))
        before_s = 0.0 if around_s is None else around_s - after_s
        whose = (terms.owner, 2.0**terms.priority, urgent, before_s, after_s)
        if budget.seconds is not None:
            return SharedWork(max(0.0, budget.seconds - job.elapsed_s), True, *whose)
        trials = budget.trials
        if trials is None and budget.trials_per_task is not None:
            # None before its import, which finds its tasks.
            trials = budget.trials_per_task * len(self._store.work.tasks(job.job_id)) or None
        trial_s = self._trial_s(job, done)
        if trials is None or trial_s is None:
            return None
        return SharedWork(max(0, trials - done) * trial_s, False, *whose)

    def _trial_s(self, job: Job, done: int) -> float | None:
        """Seconds of stages that a trial takes."""
        name, batch = job.job_id, job.spec.settings.search.batch
        if self._rounds[name]:
            is_new = job.created_at >= self.now - _LATELY_S
            return self._worked_s[name] / max(1, done if is_new else self._rounds[name] * batch)
        earlier = self.earlier.of(job.spec).work_s
        rounds = self._rounds.total()
        if earlier is None and rounds:
            return sum(self._worked_s.values()) / rounds / batch
        return earlier


def stages_at_once(spans: Sequence[StageSpan]) -> float:
    """How many stages ran at once while any did; 1 where none did."""
    busy_s, end = 0.0, -math.inf
    for span in sorted(spans, key=lambda span: span.started_at):
        busy_s += max(0.0, span.ended_at - max(span.started_at, end))
        end = max(end, span.ended_at)
    return sum(span.seconds for span in spans) / busy_s if busy_s else 1.0


def _under_way(store: Store, job: Job | None) -> list[Job]:
    """Those that have not ended and are to go on."""
    jobs = [
        other
        for other in store.jobs.page(state=JobState.RUNNING, limit=_MOST)
        if job is None
        or (other.job_id != job.job_id and other.spec.device.exact == job.spec.device.exact)
    ]
    wanted = store.coordination.requests([other.job_id for other in jobs])
    return [
        other
        for other in jobs
        if wanted.get(other.job_id, ControlRequest.RUN) is ControlRequest.RUN
    ]


def _wait_s(store: Store) -> float:
    """Seconds until the first of what is measured now ends, by the scheduler's estimates."""
    waits = [
        max(0.0, status.claim.holder.expected_s - status.seconds)
        for status in store.coordination.claims()
        if status.granted
        and not status.claim.shared
        and status.claim.holder.expected_s is not None
        and not is_over(status)
    ]
    return min(waits, default=0.0)
