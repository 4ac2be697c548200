"""Jobs that the server of a home does: submitted, followed by the events that it keeps, and told
as if this process had done them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import JobEnded, Observer
from tunefleet.core.home import Home
from tunefleet.core.job import Job, JobSpec
from tunefleet.core.result import RunResult
from tunefleet.errors import InternalError, JobError, SetupError, TunefleetError, error_named
from tunefleet.fleet.server_socket import ServerReply, ServerRequest, ask
from tunefleet.report.result import read_result
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.following import events_of, goes_on_after
from tunefleet.runs.request import enter_job
from tunefleet.store import Store

#: Seconds for a server to begin, and how often one that ends is begun again.
_START_S, _STARTS = 60.0, 3
#: Minutes for which a server that a command started waits for more.
IDLE_MINUTES = 1.0


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job in the store, who watches it here, and the number of the last event before it."""

    job: Job
    observer: Observer
    after: int


def server_of(home: Path) -> ServerReply | None:
    """The server of a home, if there is one. Raises InputError for one of another version."""
    return ask(Home(home), ServerRequest("hello"))


def start_server(home: Path) -> ServerReply:
    """Begin the server of a home, which ends when it was idle for a while; it outlives this
    process. Raises SetupError where it does not begin."""
    log = Home(home).server_log
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tunefleet", "serve", "--home", str(home)]
    with log.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(
            [*command, "--idle", f"{IDLE_MINUTES:g}"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        answer = server_of(home)
        if answer is not None:
            return answer
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SetupError(f"the server does not begin; {log} says why", cure="or run: tunefleet serve")


def submit(
    store: Store,
    spec: JobSpec,
    context: BenchmarkContext,
    observer: Observer,
    *,
    new: bool = False,
) -> Submitted:
    """Enter a job for the server of its home, or find it there. Raises as `enter_job`."""
    after = store.events.last()
    served = replace(spec, terms=replace(spec.terms, served=True))
    job = enter_job(store, served, context, new=new)
    if store.coordination.wanted(job.job_id) is not ControlRequest.RUN:
        store.coordination.ask(job.job_id, ControlRequest.RUN)
    if job.job_id != context.run_id:
        after, context.run_id = goes_on_after(store, job.job_id), job.job_id
    return Submitted(job, observer, after)


def take(home: Path, job_ids: Collection[str]) -> None:
    """Let the server of a home do jobs of its store; one begins where there is none."""
    if ask(Home(home), ServerRequest("take", tuple(job_ids))) is None:
        start_server(home)  # it looks for them


def follow(home: Path, store: Store, jobs: Mapping[str, Submitted]) -> dict[str, JobEnded]:
    """Tell observers what happens to jobs until all have ended; returns how. A server that ends
    meanwhile is begun again, which goes on with them."""
    ended: dict[str, JobEnded] = {}
    starts = 0

    def goes_on() -> bool:
        nonlocal starts
        if server_of(home) is None:
            starts += 1
            if starts > _STARTS:
                raise JobError(
                    f"the server of {home} ended {starts} times; {Home(home).server_log} says why",
                    cure="the jobs are kept: give the command again",
                )
            start_server(home)
        return True

    after = min(submitted.after for submitted in jobs.values())
    for kept in events_of(store, list(jobs), after, goes_on):
        submitted = jobs[kept.job_id]
        if kept.event is not None and kept.seq > submitted.after:
            submitted.observer(kept.event)
            if isinstance(kept.event, JobEnded):
                ended[kept.job_id] = kept.event
    return ended


def outcome_of(store: Store, job_id: str, ended: JobEnded) -> RunResult | TunefleetError:
    """What became of a job that has ended: its result, or the error that ended it."""
    if ended.error:
        return _error_of(ended)
    return read_result(store.jobs.summary(job_id) or {}, f"job {job_id[:8]}")


def _error_of(ended: JobEnded) -> TunefleetError:
    error = error_named(ended.kind)(ended.error)
    if isinstance(error, InternalError):
        error.details = ended.details  # of the process where it happened
    return error


def done_by_server(
    store: Store,
    spec: JobSpec,
    context: BenchmarkContext,
    observer: Observer,
    interrupted: ControlRequest = ControlRequest.PAUSE,
) -> dict[str, Any]:
    """The summary of a job that the server of its home does. What is asked of it where this process
    is `interrupted`: what runs finishes and the same command goes on, or it ends. Raises what ended
    it."""
    entered = submit(store, spec, context, observer)
    job_id, home = entered.job.job_id, context.home
    jobs = {job_id: entered}
    take(home, jobs)
    try:
        ended = follow(home, store, jobs)[job_id]
    except KeyboardInterrupt:
        store.coordination.ask(job_id, interrupted)
        raise
    if ended.error:
        raise _error_of(ended)
    return dict(store.jobs.summary(job_id) or {})


def stop_jobs(store: Store, jobs: Mapping[str, Submitted]) -> None:
    """What runs of them finishes, nothing more starts until the same command is given again."""
    for job_id in jobs:
        store.coordination.ask(job_id, ControlRequest.PAUSE)


Leave = Callable[[], bool]


def never() -> bool:
    """Who is asked nothing stops what they began."""
    return False
