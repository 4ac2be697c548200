"""Jobs of a service's users: submitted to the server of the home, and shown with the reason why
one makes no progress."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tunefleet.artifacts.opening import open_artifact
from tunefleet.core.coordination import ClaimStatus, ControlRequest
from tunefleet.core.events import JobEnded, JobHeld, JobOpened
from tunefleet.core.home import Home
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import Job, JobState
from tunefleet.errors import InputError, JobError
from tunefleet.fleet.leases import named_units
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.jobs import CANCELLING, PAUSED, close_idle, describe_jobs, remove_job
from tunefleet.runs.queueing import QueueEstimator
from tunefleet.runs.quotas import QUOTA_CURE, lack_of_quota
from tunefleet.runs.request import preparation_of
from tunefleet.runs.submitting import submit
from tunefleet.runs.watching import ignore
from tunefleet.service.asking import AskedJobs
from tunefleet.service.forecasts import NewestForecasts
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.values import AskedJob, JobColumn, JobView, QueueView, Reason, ServiceState
from tunefleet.store import Store, User

_DAY_S = 86_400.0
#: Jobs that are filtered and sorted, the newest.
_SORTED = 500
#: Newest events in which the reason is searched why a job waits.
_LATEST_EVENTS = 200


class ServiceJobs:
    """Operations of users on their own jobs. Each method raises Refused for another's job, as
    for one that does not exist, and errors of the tree."""

    def __init__(self, home: Path, store: Store) -> None:
        self._home = home
        self._store = store
        self._forecasts = NewestForecasts(store)
        self._queue = QueueEstimator(store)
        self.asked = AskedJobs(home, store)

    def enter(self, user: User, asked: AskedJob, source: NetworkSource | None = None) -> Job:
        """Submit a job, or find the same one under way. `source` is its network, if it was
        checked."""
        self._check_quota(user)
        folder = None
        if asked.kind in ("evaluate", "run"):
            if asked.artifact is None:
                raise Refused(422, f"which artifact to {asked.kind} is not said", cure="name one")
            folder, _ = self.artifact_of(user, asked.artifact)
        if asked.kind == "run" and (lack := lack_of_quota(self._store, self._home, user.name, 1)):
            raise Refused(413, lack, cure=QUOTA_CURE)
        from_job = self.of(user, asked.from_job).job_id if asked.from_job else ""
        context = self.asked.context(user, asked)
        spec = self.asked.spec(user, asked, context, folder, from_job, source)
        return submit(self._store, spec, context, ignore).job

    def _check_quota(self, user: User) -> None:
        most, most_s = user.quota.jobs, user.quota.device_s
        if most is not None:
            running = self._store.jobs.page(tenant=user.name, state=JobState.RUNNING, limit=most)
            if len(running) >= most:
                raise Refused(
                    429,
                    f"{most} jobs are under way, and no more may be",
                    cure="wait for one of them",
                )
        if most_s is not None:
            used_s = self._store.holdings.measured_s(user.name, time.time() - _DAY_S)
            if used_s >= most_s:
                raise Refused(
                    429,
                    f"your jobs measured for {used_s:.0f} s of a day's {most_s:.0f} s",
                    cure="ask again later",
                )

    def of(self, user: User, name: str) -> Job:
        """A job of a user, by its id or the beginning of it."""
        found = self._store.jobs.page(prefix=name, tenant=user.name, limit=2)
        if len(name) < 6 or len(found) != 1:
            raise not_found(f"job {name}")
        return found[0]

    def page(
        self, user: User, after: str, limit: int, state: ServiceState | None
    ) -> tuple[list[Job], str | None]:
        """A page of the jobs of a user, newest first, and the cursor of the next."""
        if after:
            self.of(user, after)
        stored = None
        if state is not None:
            ended = str(state) in {str(each) for each in JobState}
            stored = JobState(str(state)) if ended else JobState.RUNNING
        jobs = self._store.jobs.page(after=after, limit=limit, state=stored, tenant=user.name)
        more = jobs[-1].job_id if len(jobs) == limit else None
        return jobs, more

    def in_order(
        self,
        user: User,
        state: ServiceState | None,
        text: str,
        column: JobColumn,
        ascending: bool,
    ) -> tuple[list[JobView], int]:
        """The jobs of a user in a state, with this text in the name of their network or device,
        sorted by a column, those without a value last; and how many of the newest were examined."""
        jobs, _ = self.page(user, "", _SORTED, state)
        wanted = text.casefold()
        named = [
            job
            for job in jobs
            if wanted in job.spec.network.name.casefold()
            or wanted in job.spec.device.name.casefold()
        ]
        views = [view for view in self.views(named) if state in (None, view.state)]
        has = [view for view in views if _value(view, column) is not None]
        found = sorted(has, key=lambda view: _value(view, column), reverse=not ascending)
        return [*found, *(view for view in views if _value(view, column) is None)], len(jobs)

    def views(self, jobs: Sequence[Job]) -> list[JobView]:
        """Jobs as lists show them."""
        values = describe_jobs(self._store, jobs)
        open_jobs = [job for job in jobs if job.state is JobState.RUNNING]
        why, forecasts = _Reasons(self._store, open_jobs), self._forecasts.of(open_jobs)
        return [
            _view(job, value, why).model_copy(update={"forecast": forecasts.get(job.job_id)})
            for job, value in zip(jobs, values, strict=True)
        ]

    def queue(self, job: Job | None = None) -> QueueView:
        """When a job that was just submitted starts and ends; without one, the state of the
        queue."""
        return QueueView(**asdict(self._queue.estimate(time.time(), job)))

    def entered(self, job: Job) -> JobView:
        """A job that was just submitted, with its place in the queue."""
        view = self.view(job)
        if view.state not in (ServiceState.QUEUED, ServiceState.RUNNING):
            return view
        return view.model_copy(update={"queue": self.queue(job)})

    def view(self, job: Job) -> JobView:
        """One job with its result."""
        [view] = self.views([job])
        summary = self._store.jobs.summary(job.job_id)
        result = summary if isinstance(summary, dict) else None
        error = (result or {}).get("error") if job.state is JobState.FAILED else None
        return view.model_copy(update={"result": result, "error": error})

    def ask(self, user: User, name: str, request: ControlRequest) -> Job:
        """Pause, resume or cancel a job."""
        job = self.of(user, name)
        if job.state is not JobState.RUNNING:
            raise Refused(409, f"job {job.job_id[:8]} has {job.state}", cure="nothing of it runs")
        self._store.coordination.ask(job.job_id, request)
        if request is ControlRequest.CANCEL:
            close_idle(self._store, job)
        return self.of(user, job.job_id)

    def retry(self, user: User, name: str) -> Job:
        """Submit the same request as a new job."""
        old = self.of(user, name)
        if old.state is JobState.RUNNING:
            raise Refused(409, f"job {old.job_id[:8]} is under way", cure="cancel it before")
        self._check_quota(user)
        context = BenchmarkContext.of_job(old, self._home)
        if old.spec.source and old.spec.preparation != preparation_of(context, old.spec.source):
            why = f"job {old.job_id[:8]} was asked for on another device, or with another version"
            raise Refused(409, why, cure="submit its network again")
        context.renew()
        return submit(self._store, old.spec, context, ignore).job

    def remove(self, user: User, name: str) -> None:
        """Delete a job with its records, artifact and outputs."""
        job = self.of(user, name)
        if job.state is JobState.RUNNING:
            raise Refused(409, f"job {job.job_id[:8]} is under way", cure="cancel it before")
        run = str((self._store.jobs.summary(job.job_id) or {}).get("run") or "")
        folder = Home(self._home).artifacts / run
        is_own = run and folder.is_dir() and _job_of(folder) in ("", run, job.job_id)
        remove_job(self._store, Home(self._home), job)
        if is_own:  # not that of an earlier job, which met what this one agreed on
            shutil.rmtree(folder)

    def artifact_of(self, user: User, name: str) -> tuple[Path, Job]:
        """The folder of an artifact that a job of this user delivered, by the beginning of its
        id, and that job."""
        for folder in sorted(Home(self._home).artifacts.glob(f"{name}*")):
            job_id = _job_of(folder)
            if not job_id:  # damaged, and possibly of another user
                continue
            found = self._store.jobs.page(prefix=job_id, tenant=user.name, limit=1)
            job = found[0] if found else self._built(user, folder.name)
            if job is not None:
                return folder, job
        raise not_found(f"artifact {name}")

    def _built(self, user: User, run_id: str) -> Job | None:
        """The newest job of a user that delivered a build, whose id is derived from its content."""
        after, succeeded = "", JobState.SUCCEEDED
        while jobs := self._store.jobs.page(after=after, state=succeeded, tenant=user.name):
            outcomes = self._store.jobs.outcomes([job.job_id for job in jobs])
            for job in jobs:
                summary = outcomes[job.job_id].summary
                if isinstance(summary, dict) and summary.get("run") == run_id:
                    return job
            after = jobs[-1].job_id
        return None


def _job_of(folder: Path) -> str:
    """The job that delivered an artifact; "" for a damaged one."""
    try:
        return str(open_artifact(folder).result.get("job") or folder.name)
    except InputError:
        return ""


class _Reasons:
    """Why running jobs make no progress, with one look at the store for all of them."""

    def __init__(self, store: Store, jobs: Sequence[Job]) -> None:
        job_ids = [job.job_id for job in jobs]
        self._events = store.events
        self._claims = store.coordination.claims() if jobs else []
        self._wanted = store.coordination.requests(job_ids)
        self._held: dict[str, JobHeld] = {}
        latest = store.events.last() - _LATEST_EVENTS if jobs else 0
        for kept in store.events.page(max(0, latest), job_ids) if jobs else ():
            if isinstance(kept.event, JobHeld):
                self._held[kept.job_id] = kept.event
            elif not isinstance(kept.event, JobOpened):
                self._held.pop(kept.job_id, None)

    def state(self, job: Job, value: Mapping[str, Any]) -> tuple[ServiceState, Reason | None]:
        """The state of a job that `describe_jobs` describes, and its reason."""
        state, text = value["state"], value["reason"]
        if state == CANCELLING:
            return ServiceState.CANCELLING, Reason(code="cancelled_by_user", text=text)
        if state == PAUSED:
            if self._wanted.get(job.job_id) is ControlRequest.PAUSE:
                return ServiceState.PAUSED, Reason(code="paused_by_user", text="paused by its user")
            if refused := self._refused(job.job_id):
                return ServiceState.PAUSED, Reason(code="cannot_go_on", text=refused)
            text = "the scheduler takes it up at its next poll"
            return ServiceState.QUEUED, Reason(code="not_begun", text=text)
        if state != JobState.RUNNING:
            code = "ended" if state == JobState.SUCCEEDED else f"{state}"
            return ServiceState(state), Reason(code=code, text=text) if text else None
        return ServiceState.RUNNING, self._waiting(job)

    def _refused(self, job_id: str) -> str:
        """Why the server does not take up a job, such as one of another machine; else empty."""
        kept = self._events.page(0, [job_id], kinds=(JobOpened, JobEnded))
        match kept[-1].event if kept else None:
            case JobEnded(error=error, kind=JobError.__name__):
                return error
        return ""

    def _waiting(self, job: Job) -> Reason | None:
        """Why no stage of a job runs now; None where one does."""
        held = self._held.get(job.job_id)
        if held is not None:
            # The names of others are not shown.
            what = held.reason.partition(" used by ")
            text = f"{what[0]} used by another job" if what[1] else what[0]
            return Reason(code="waits_for_others", text=text)
        granted = [claim for claim in self._claims if claim.granted]
        if any(claim.claim.holder.job_id == job.job_id for claim in granted):
            return None
        others = [c for c in granted if c.claim.holder.job_id not in ("", job.job_id)]
        if not others:
            return None
        return Reason(code="waits_for_share", text=_waits_for(others[-1]))


def _view(job: Job, value: Mapping[str, Any], why: _Reasons) -> JobView:
    spec, agreement = job.spec, value["agreement"] or {}
    state, reason = why.state(job, value)
    return JobView(
        id=job.job_id,
        kind=str(spec.kind),
        network=spec.network.name,
        owner=spec.terms.owner,
        state=state,
        reason=reason,
        outcome=agreement.get("outcome"),
        created_at=job.created_at,
        elapsed_s=job.elapsed_s,
        deadline=spec.terms.deadline,
        priority=spec.terms.priority,
        device=spec.device.name,
        target=str(spec.target),
        budget=value["budget"],
        agreement=dict(*spec.agreement.parts) if spec.agreement.parts else {},
        trials=value["trials"],
        latency_ms=value["latency_ms"],
        speedup=value["speedup"],
        artifact=value["run"] if value["artifact"] else None,
    )


def _value(view: JobView, column: JobColumn) -> Any:
    """The sort key of a column."""
    return {
        JobColumn.NETWORK: view.network.casefold(),
        JobColumn.STATE: view.state.value,
        JobColumn.DEVICE: view.device.casefold(),
        JobColumn.LATENCY: view.latency_ms,
        JobColumn.FORECAST: view.forecast and view.forecast.median_ms,
        JobColumn.SPEEDUP: view.speedup,
        JobColumn.TRIALS: view.trials,
        JobColumn.SEARCHED: view.elapsed_s,
        JobColumn.SUBMITTED: view.created_at,
    }[column]


def _waits_for(other: ClaimStatus) -> str:
    """What a job waits for; the names of others' jobs are left out."""
    holder, left = other.claim.holder, ""
    if holder.expected_s is not None and holder.expected_s > other.seconds:
        at = time.time() + holder.expected_s - other.seconds
        left = f", until about {time.strftime('%H:%M', time.localtime(at))}"
    job = f"job {holder.job_id[:8]}" if holder.job_id else "another measurement"
    return f"{named_units(other.claim.units)} used by {job}{left}"
