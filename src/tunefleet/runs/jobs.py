"""The jobs of a home as their user sees them: what each does now, what came of it, removing it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tunefleet.core.budget import NO_SEARCH, Budget
from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import ended_by
from tunefleet.core.home import Home
from tunefleet.core.job import BESIDE_OTHERS, Job, JobKind, JobState
from tunefleet.core.result import RunResult, of_shape, to_json
from tunefleet.core.statistics import Interval
from tunefleet.core.step import StepKey, StepKind
from tunefleet.errors import InputError, JobError
from tunefleet.fleet.leases import Leases, jobs_held
from tunefleet.runs.outlook import kept_forecasts
from tunefleet.runs.timeline import find_job
from tunefleet.store import JobOutcome, Store, job_pages, open_store

RUNNING, PAUSED, CANCELLING = str(JobState.RUNNING), "paused", "cancelling"
#: Every state that `status_of` gives.
STATES = (RUNNING, PAUSED, CANCELLING, *(str(s) for s in JobState if s is not JobState.RUNNING))

#: Jobs that are read at once where all are listed.
_PAGE = 100
_BUDGET = tuple(field.name for field in fields(Budget))
INTERRUPTED = "interrupted; the same command continues it"
UNSERVED = "no server runs; the next one continues it (tunefleet serve)"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A word of `STATES`, and why it is so where that does not go without saying."""

    state: str
    reason: str = ""


def status_of(
    state: JobState,
    *,
    worked_on: bool,
    wanted: ControlRequest,
    delivered: bool,
    stopped: str,
    served: bool = False,
) -> JobStatus:
    """What a job does. `worked_on`: a process that lives has it; `wanted` is what its user asked
    for last; `delivered`: nothing of it is left to do; `stopped` is why it ended; `served`: it is
    a server's to do."""
    if state is not JobState.RUNNING:
        return JobStatus(str(state), "" if state is JobState.SUCCEEDED else stopped)
    if not worked_on and served:
        return JobStatus(PAUSED, "by its user" if wanted is ControlRequest.PAUSE else UNSERVED)
    if not worked_on:
        by_user = " by its user, then" if wanted is ControlRequest.PAUSE else ""
        return JobStatus(PAUSED, f"paused{by_user} {INTERRUPTED}" if by_user else INTERRUPTED)
    if wanted is ControlRequest.CANCEL:
        return JobStatus(CANCELLING, "what runs of it is ending")
    if wanted is ControlRequest.PAUSE:
        return JobStatus(PAUSED, "by its user")
    waits = "delivered; waiting for the other networks of its command"
    return JobStatus(RUNNING, waits if delivered else "")


def list_jobs(
    home: Path, states: Collection[str] = (), limit: int | None = None
) -> list[dict[str, Any]]:
    """The jobs of a home as JSON values, newest first: of these states, and no more than `limit`.
    None where there is no home: looking creates nothing."""
    if not home.is_dir() or limit == 0:
        return []
    listed: list[dict[str, Any]] = []
    store = open_store(home)
    try:
        for page in job_pages(store.jobs, state=_stored(states), size=limit or _PAGE):
            shown = [
                {**value, "forecast": _forecast(store, job)}
                for job, value in zip(page, describe_jobs(store, page), strict=True)
            ]
            listed += [each for each in shown if not states or each["state"] in states]
            if limit is not None and len(listed) >= limit:
                break
    finally:
        store.close()
    return listed[:limit]


def describe_jobs(store: Store, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Jobs as JSON values; what only a finished one has is None."""
    held = jobs_held(store.coordination)
    job_ids = [job.job_id for job in jobs]
    outcomes, wanted = store.jobs.outcomes(job_ids), store.coordination.requests(job_ids)
    described = []
    for job in jobs:
        outcome = outcomes[job.job_id]
        asked = wanted.get(job.job_id, ControlRequest.RUN)
        status = _status(store, job, held, asked, _mapping(outcome.summary))
        described.append(_described(job, status, outcome))
    return described


def _forecast(store: Store, job: Job) -> dict[str, Any] | None:
    """The newest forecast of a search that goes on: what it says of the end of its budget."""
    if job.state is not JobState.RUNNING:
        return None
    forecasts, outcome = kept_forecasts(store, job.job_id)
    if not forecasts or outcome is not None:
        return None
    at, newest = forecasts[-1]
    ends_at = at + max(0.0, newest.end_s - newest.elapsed_s)
    latency_s, likely = to_json(newest.latency_s), newest.probability
    return {"latency_s": latency_s, "ends_at": ends_at, "probability": likely}


def _stored(states: Collection[str]) -> JobState | None:
    """The state in the store of all jobs in these states; None where there are several."""
    ended = {JobState(state) for state in states if state in set(JobState)}
    running = {JobState.RUNNING} if set(states) & {PAUSED, CANCELLING} else set()
    return next(iter(ended | running)) if len(ended | running) == 1 else None


def remove_jobs(home: Path, names: Sequence[str]) -> list[Job]:
    """Forget jobs with their records and what lies on their way; their artifacts stay.

    Raises InputError for one that is unknown, ambiguous or worked on, before any is removed.
    """
    root = Home(home)
    store = open_store(home)
    try:
        jobs = list({job.job_id: job for job in (find_job(store, name) for name in names)}.values())
        held = jobs_held(store.coordination)
        for job in jobs:
            if job.spec.fingerprint in held and job.state is JobState.RUNNING:
                raise InputError(
                    f"job {job.job_id[:8]} ({job.spec.network.name}) is running",
                    cure=f"end it before: tunefleet cancel {job.job_id[:8]}",
                )
        for job in jobs:
            remove_job(store, root, job)
    finally:
        store.close()
    return jobs


def cancel_interrupted(home: Path, job: Job) -> bool:
    """Close a job that no process works on; False where one does, which has to be asked."""
    with closing(open_store(home)) as store:
        return close_idle(store, job)


def close_idle(store: Store, job: Job) -> bool:
    """As `cancel_interrupted`, in a store that is open."""
    if job.spec.fingerprint in jobs_held(store.coordination):
        return False
    with Leases(store.coordination).job(job.spec.fingerprint):
        close_cancelled(store, job)
    return True


def close_cancelled(store: Store, job: Job) -> None:
    """End a job that its user has cancelled and no process works on; followers see the event."""
    stopped = "cancelled by its user"
    ended = JobError(f"{job.spec.network.name}: {stopped}", cure=f"{job.spec.kind} it again")
    summary = {"stopped": stopped}
    store.jobs.finish(job.job_id, JobState.CANCELLED, summary, ended_by(ended))
    store.coordination.ask(job.job_id, ControlRequest.RUN)


def trials_of(home: Path, names: Sequence[str]) -> int:
    """How many trials jobs have. Raises InputError as `remove_jobs`."""
    store = open_store(home)
    try:
        jobs = {find_job(store, name).job_id for name in names}
        return sum(store.records.trial_count(job_id) for job_id in jobs)
    finally:
        store.close()


def remove_job(store: Store, root: Home, job: Job) -> None:
    """Forget a job that nobody works on, with its records and what lies on its way."""
    from tunefleet.artifacts.blobs import remove_unused

    # Nobody takes it up meanwhile.
    with Leases(store.coordination).job(job.spec.fingerprint):
        store.jobs.remove(job.job_id)
        remove_unused(root.objects / job.job_id)
        shutil.rmtree(root.outputs_of(job.spec.tenant) / job.job_id, ignore_errors=True)


def _mapping(summary: Any) -> dict[str, Any]:
    return summary if isinstance(summary, dict) else {}


def _status(
    store: Store,
    job: Job,
    held: Collection[str],
    wanted: ControlRequest,
    summary: dict[str, Any],
) -> JobStatus:
    worked_on = job.state is JobState.RUNNING and bool(held) and job.spec.fingerprint in held
    return status_of(
        job.state,
        worked_on=worked_on,
        wanted=wanted,
        delivered=worked_on and store.work.step(StepKey(job.job_id, StepKind.MEASURE)) is not None,
        stopped=str(summary.get("stopped") or ""),
        served=job.spec.terms.served,
    )


def _result(job: Job, summary: dict[str, Any]) -> RunResult:
    """What came of a job, as far as a list shows it. Raises InputError."""
    from tunefleet.report.result import read_evaluation, read_result

    kind, is_done = job.spec.kind, job.state is JobState.SUCCEEDED
    if kind is JobKind.PLACE or (kind in (JobKind.EVALUATE, JobKind.RUN) and not is_done):
        return RunResult()
    if kind is JobKind.RUN:
        latency_ms = summary["latency_ms"]  # of calls that were timed
        return RunResult(tuned_ms=Interval(**latency_ms) if latency_ms else None)
    if job.spec.evaluated:
        figures = read_evaluation(summary)
        return RunResult(**of_shape(figures), artifact=figures.artifact)
    return read_result(summary, f"job {job.job_id[:8]}")


def _described(job: Job, status: JobStatus, outcome: JobOutcome) -> dict[str, Any]:
    """One job; what only a finished one has is None."""
    budget, reason = job.spec.budget, status.reason
    searches = job.spec.budget != NO_SEARCH
    try:
        result = _result(job, _mapping(outcome.summary))
    except InputError as error:
        result, reason = RunResult(), str(error)
    if job.spec.shared:
        reason = f"{reason}; {BESIDE_OTHERS}" if reason else BESIDE_OTHERS
    return {
        "job": job.job_id,
        "state": status.state,
        "reason": reason,
        "kind": str(job.spec.kind),
        "network": job.spec.network.name,
        "target": str(job.spec.target),
        "created_at": job.created_at,
        "elapsed_s": job.elapsed_s,
        "budget": {name: getattr(budget, name) if searches else None for name in _BUDGET},
        "trials": outcome.trials,
        "latency_ms": result.tuned_ms.median if result.tuned_ms else None,
        "speedup": result.speedup.median if result.speedup else None,
        "why_no_speedup": result.why_no_speedup,
        "agreement": to_json(result.agreement),
        "shared": job.spec.shared,
        "run": result.run or None,
        "artifact": result.artifact,
    }
