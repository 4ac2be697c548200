"""When a job that is entered now would begin and end, beside those that are under way.

Jobs share their devices, each stage in turn, so a job begins as soon as what runs now ends, and all
that is under way slows it down. How long the others still take follows from what their trials took
so far; how long it takes itself, from earlier runs of its network (`forecast.forecast_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.fleet.leases import is_over
from tunefleet.runs.forecast import forecast_of
from tunefleet.store import Store

#: Jobs that are looked at; where there are more nothing is said of an end.
_MOST = 50


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
    """What is left of a search: seconds of work, or (`is_timed`) seconds until it ends whatever it
    does by then."""

    seconds: float
    is_timed: bool


def queue_estimate(store: Store, now: float, job: Job | None = None) -> QueueEstimate:
    """For a job that was entered just now; without one, of those that are under way."""
    others = _under_way(store, job)
    starts_at = now + _wait_s(store)
    ends_at: float | None = None
    if len(others) >= _MOST:
        return QueueEstimate(len(others), starts_at, None)
    left = _left(store, others)
    known = [each for each in left if each is not None]
    if job is None:
        if len(known) == len(left):
            ends_at = max((now + _alone_s(each, known) for each in known), default=None)
    elif len(known) == len(left):
        needed = _needed(store, job.spec)
        if needed is not None:
            search, around_s = needed
            ends_at = starts_at + around_s + finished_s(search, known)
    return QueueEstimate(len(others), starts_at, ends_at)


def finished_s(own: SharedWork, others: Sequence[SharedWork]) -> float:
    """Seconds until work is done that shares a device with others, equally until they end."""
    if own.is_timed:
        return own.seconds
    left, time_s, left_of = own.seconds, 0.0, [[each.seconds, each.is_timed] for each in others]
    while left > 0:
        share = 1.0 / (1 + len(left_of))
        until_s = [seconds if is_timed else seconds / share for seconds, is_timed in left_of]
        step_s = min([left / share, *until_s])
        time_s += step_s
        left -= step_s * share
        for each in left_of:
            each[0] -= step_s if each[1] else step_s * share
        left_of = [each for each in left_of if each[0] > 1e-6]
        if left <= 1e-6:
            break
    return time_s


def _alone_s(one: SharedWork, of_all: Sequence[SharedWork]) -> float:
    others = list(of_all)
    others.remove(one)
    return finished_s(one, others)


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


def _left(store: Store, jobs: Sequence[Job]) -> list[SharedWork | None]:
    """What is left of the searches of jobs that share a device."""
    outcomes = store.jobs.outcomes([job.job_id for job in jobs])
    left: list[SharedWork | None] = []
    for job in jobs:
        budget, done = job.spec.budget, outcomes[job.job_id].trials
        if budget.seconds is not None:
            left.append(SharedWork(max(0.0, budget.seconds - job.elapsed_s), is_timed=True))
        elif budget.trials is not None and done and job.elapsed_s:
            # It took so long beside the others.
            trial_s = job.elapsed_s / done / len(jobs)
            left.append(SharedWork(max(0, budget.trials - done) * trial_s, is_timed=False))
        else:
            left.append(None)
    return left


def _needed(store: Store, spec: JobSpec) -> tuple[SharedWork, float] | None:
    """The search of a job, and the seconds of what is before and behind it; None where no earlier
    run of its network says."""
    forecast, budget = forecast_of(store, spec), spec.budget
    around_s = forecast.around_search_s(prepared=False)
    if around_s is None:
        return None
    if budget.seconds is not None:
        return SharedWork(budget.seconds, is_timed=True), around_s
    if budget.trials is None or forecast.trial_s is None:
        return None
    return SharedWork(budget.trials * forecast.trial_s, is_timed=False), around_s


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
