"""Jobs: submitted, watched, paused, resumed, cancelled."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse

from tunefleet.core.coordination import ControlRequest
from tunefleet.core.events import JobEnded
from tunefleet.core.ids import digest
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import Job, JobState
from tunefleet.errors import InputError
from tunefleet.runs.run_log import log_file, read_log
from tunefleet.runs.timeline import build_timeline, without_other_names
from tunefleet.service.caller import ByUser
from tunefleet.service.problems import Refused, not_found
from tunefleet.service.values import (
    AskedJob,
    EventPage,
    JobColumn,
    JobCurve,
    JobPage,
    JobView,
    ServiceState,
)
from tunefleet.store import KeptEvent

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_Id = Annotated[str, Path(pattern=r"^[0-9a-f]{6,32}$")]
#: The longest wait for a job, in seconds.
_LONGEST_WAIT_S = 60.0
#: Seconds between two comments that keep a stream without events open.
_ALIVE_S = 15.0
#: Polls for the last event of a job that has ended, and the seconds between them.
_LAST_LOOKS, _LAST_LOOK_S = 4, 0.5
_WAIT = re.compile(r"(?:^|[,;\s])wait=(\d+)")
_STREAM = "text/event-stream"
#: Lines of a log in a response.
_LOG_LINES = 2000


async def checked_network(
    asked: AskedJob, request: Request, caller: ByUser
) -> NetworkSource | None:
    """The network of a job, if it had to be checked with the job's options."""
    state = request.app.state
    if state.jobs.asked.is_known(asked):
        return None
    check = await asyncio.to_thread(state.jobs.asked.check, caller.user, asked)
    if check is None:
        return None
    what = digest(asked.model_dump(mode="json"))
    source: NetworkSource = await state.admission.checked(caller.user.name, what, check)
    return source


@router.post("", status_code=201)
def create_job(
    asked: AskedJob,
    request: Request,
    response: Response,
    caller: ByUser,
    source: Annotated[NetworkSource | None, Depends(checked_network)],
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> JobView:
    """Submit a job. The same request again returns the job that is under way for it; with an
    `Idempotency-Key`, valid for a day, also one that has ended. A network with given shapes or a
    precision is imported or quantised first, which takes seconds or longer."""
    state, user = request.app.state, caller.user
    holdings, content = state.store.holdings, digest(asked.model_dump(mode="json"))
    if idempotency_key is not None:
        first = holdings.begin_request(user.name, idempotency_key, content, time.time())
        if first is not None and first.asked != content:
            raise Refused(
                422, "this Idempotency-Key was used for another request", cure="use a new one"
            )
        if first is not None and first.answer is None:
            raise Refused(
                409,
                "the first request with this key is being answered",
                cure="send it again a second later",
                headers={"Retry-After": "1"},
            )
        if first is not None:
            return _given(response, state.jobs.view(state.jobs.of(user, first.answer["job"])))
    try:
        job = state.jobs.enter(user, asked, source)
    except BaseException:
        if idempotency_key is not None:
            holdings.end_request(user.name, idempotency_key, None)
        raise
    if idempotency_key is not None:
        holdings.end_request(user.name, idempotency_key, {"job": job.job_id})
    state.audit.keep(user.name, "submit", job=job.job_id, network=job.spec.network.name)
    state.wake([job.job_id])
    return _given(response, state.jobs.entered(job))


def _given(response: Response, view: JobView) -> JobView:
    response.headers["Location"] = f"/v1/jobs/{view.id}"
    return view


@router.get("")
def list_jobs(
    request: Request,
    caller: ByUser,
    state: ServiceState | None = None,
    cursor: Annotated[str, Query(pattern=r"^([0-9a-f]{6,32})?$")] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    text: Annotated[str, Query(max_length=200)] = "",
    sort: JobColumn = JobColumn.SUBMITTED,
    ascending: bool = False,
) -> JobPage:
    """One's jobs, newest first. Pages filtered by state may have fewer jobs than `limit` and
    still a next page. Lists that are sorted, or filtered by a part of the name of network or
    device, cover the newest 500."""
    if text or ascending or sort is not JobColumn.SUBMITTED:
        found, looked = request.app.state.jobs.in_order(caller.user, state, text, sort, ascending)
        return JobPage(jobs=found[:limit], of_newest=looked)
    jobs, more = request.app.state.jobs.page(caller.user, cursor, limit, state)
    views = request.app.state.jobs.views(jobs)
    return JobPage(jobs=[v for v in views if state in (None, v.state)], next=more)


@router.get("/{job_id}", responses={304: {"description": "Not changed."}})
async def get_job(
    job_id: _Id,
    request: Request,
    caller: ByUser,
    prefer: Annotated[str | None, Header(max_length=200)] = None,
    if_none_match: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """One job with its result. `Prefer: wait=N` waits up to N seconds for its end."""
    jobs = request.app.state.jobs
    job: Job = await asyncio.to_thread(jobs.of, caller.user, job_id)
    headers, wait_s = {}, _waited_s(prefer)
    if wait_s:
        headers["Preference-Applied"] = f"wait={wait_s:.0f}"
        job = await _ended(request, job, time.monotonic() + wait_s)
    view = await asyncio.to_thread(jobs.view, job)
    value = view.model_dump(mode="json")
    headers["ETag"] = f'"{digest(value)}"'
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return JSONResponse(value, headers=headers)


def _waited_s(prefer: str | None) -> float:
    """The seconds of a `Prefer` header."""
    waits = _WAIT.search(prefer or "")
    return min(float(waits[1]), _LONGEST_WAIT_S) if waits else 0.0


async def _ended(request: Request, job: Job, until: float) -> Job:
    store = request.app.state.store
    with request.app.state.news.of(job.job_id) as happened:
        while True:
            job = await asyncio.to_thread(store.jobs.get, job.job_id)
            left_s = until - time.monotonic()
            if job.state is not JobState.RUNNING or left_s <= 0:
                return job
            happened.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(happened.wait(), left_s)


@router.post("/{job_id}/pause", status_code=202)
def pause_job(job_id: _Id, request: Request, caller: ByUser) -> JobView:
    """Pause a job: running stages finish, no more start."""
    return _asked(request, caller, job_id, ControlRequest.PAUSE)


@router.post("/{job_id}/resume", status_code=202)
def resume_job(job_id: _Id, request: Request, caller: ByUser) -> JobView:
    """Resume a paused job."""
    return _asked(request, caller, job_id, ControlRequest.RUN)


@router.post("/{job_id}/cancel", status_code=202)
def cancel_job(job_id: _Id, request: Request, caller: ByUser) -> JobView:
    """End a job now; its records are kept."""
    return _asked(request, caller, job_id, ControlRequest.CANCEL)


@router.post("/{job_id}/retry", status_code=201)
def retry_job(job_id: _Id, request: Request, response: Response, caller: ByUser) -> JobView:
    """Submit the same request as a new job, which starts from the records of the one that ended."""
    state = request.app.state
    job = state.jobs.retry(caller.user, job_id)
    state.audit.keep(caller.user.name, "retry", job=job.job_id, of=job_id)
    state.wake([job.job_id])
    return _given(response, state.jobs.entered(job))


def _asked(request: Request, caller: ByUser, job_id: str, what: ControlRequest) -> JobView:
    state = request.app.state
    job = state.jobs.ask(caller.user, job_id, what)
    state.audit.keep(caller.user.name, str(what), job=job.job_id)
    state.wake([job.job_id])
    view: JobView = state.jobs.view(job)
    return view


@router.delete("/{job_id}", status_code=204)
def delete_job(job_id: _Id, request: Request, caller: ByUser) -> None:
    """Delete a job that has ended, with its records, artifact and outputs."""
    request.app.state.jobs.remove(caller.user, job_id)
    request.app.state.audit.keep(caller.user.name, "delete job", job=job_id)


@router.get(
    "/{job_id}/events",
    response_model=EventPage,
    responses={200: {"content": {_STREAM: {"schema": {"type": "string"}}}}},
)
async def job_events(
    job_id: _Id,
    request: Request,
    caller: ByUser,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**53)] = None,
    prefer: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Events of a job after a number: a page of JSON, or a stream if `text/event-stream` is
    accepted (each event's id is its number). A stream ends with the job; for a page, `Prefer:
    wait=N` waits up to N seconds for the first event."""
    job = await asyncio.to_thread(request.app.state.jobs.of, caller.user, job_id)
    if _STREAM in request.headers.get("accept", ""):
        stream = _stream(request, job, after if last_event_id is None else last_event_id)
        # nginx would keep events back until its buffer is full.
        return StreamingResponse(stream, media_type=_STREAM, headers={"X-Accel-Buffering": "no"})
    until = time.monotonic() + _waited_s(prefer)
    page = await _page(request, job, after, limit, until)
    more = str(page[-1].seq) if len(page) == limit else None
    return JSONResponse({"events": [kept.to_json() for kept in page], "next": more})


async def _page(
    request: Request, job: Job, after: int, limit: int, until: float
) -> list[KeptEvent]:
    """The events of a job after a number: existing ones, else those that arrive until the
    deadline."""
    store, news = request.app.state.store, request.app.state.news
    with news.of(job.job_id) as happened:
        left_s = until - time.monotonic()
        while left_s > 0 and job.state is JobState.RUNNING:
            happened.clear()
            page: list[KeptEvent] = await news.page(job.job_id, after, limit)
            if page:
                return page
            with suppress(TimeoutError):
                await asyncio.wait_for(happened.wait(), left_s)
            left_s = until - time.monotonic()
    found: list[KeptEvent] = await asyncio.to_thread(store.events.page, after, [job.job_id], limit)
    return found


async def _stream(request: Request, job: Job, after: int) -> AsyncIterator[str]:
    store, is_end, looks = request.app.state.store, False, _LAST_LOOKS
    with request.app.state.news.of(job.job_id) as happened:
        while not await request.is_disconnected():
            happened.clear()
            page = await request.app.state.news.page(job.job_id, after)
            for kept in page:
                after, value = kept.seq, kept.to_json()
                name = value["event"] or "unknown"
                yield f"id: {after}\nevent: {name}\ndata: {json.dumps(value)}\n\n"
                is_end = isinstance(kept.event, JobEnded)
            if page:
                continue
            now = await asyncio.to_thread(store.jobs.get, job.job_id)
            wait_s = _ALIVE_S
            if now.state is not JobState.RUNNING:  # its last event may be stored a moment later
                looks, wait_s = looks - 1, _LAST_LOOK_S
            if is_end or not looks:
                return
            try:
                await asyncio.wait_for(happened.wait(), wait_s)
            except TimeoutError:
                yield ": alive\n\n"


@router.get("/{job_id}/tasks")
def job_tasks(job_id: _Id, request: Request, caller: ByUser) -> dict[str, Any]:
    """The tasks of a job with their trials; empty before its import. `best_s` is the best
    latency so far, including results of earlier jobs."""
    job = request.app.state.jobs.of(caller.user, job_id)
    tasks = []
    for each in request.app.state.histories.of(job.job_id).tasks:
        of = each.weighted.task
        tasks.append(
            {
                "task_id": of.task_id,
                "name": of.name,
                "shapes": of.shapes,
                "weight": each.weighted.weight,
                "flops": of.flops,
                "trials": each.trials,
                "failed": each.failed,
                "best_s": each.best_s,
            }
        )
    return {"tasks": tasks}


@router.get("/{job_id}/curve")
def job_curve(job_id: _Id, request: Request, caller: ByUser) -> JobCurve:
    """The best estimate so far of a search, by trials and seconds."""
    job = request.app.state.jobs.of(caller.user, job_id)
    history = request.app.state.histories.of(job.job_id)
    return JobCurve(samples=list(history.samples), forecast=history.forecast)


@router.get("/{job_id}/timeline")
def job_timeline(job_id: _Id, request: Request, caller: ByUser) -> dict[str, Any]:
    """Where and when its stages ran, as `tunefleet timeline --json`; names of others' jobs are
    left out."""
    state = request.app.state
    job = state.jobs.of(caller.user, job_id)
    return without_other_names(build_timeline(state.store, job))


@router.get("/{job_id}/outputs/{name}", response_class=FileResponse)
def job_output(
    job_id: _Id,
    name: Annotated[str, Path(pattern=r"^output(-\d{1,4})?\.npy$")],
    request: Request,
    caller: ByUser,
) -> FileResponse:
    """An output of a job of kind `run`, a `.npy` file."""
    job = request.app.state.jobs.of(caller.user, job_id)
    file = request.app.state.home.outputs_of(caller.user.name) / job.job_id / name
    if not file.is_file():
        raise not_found(f"output {name}")
    return FileResponse(file, media_type="application/octet-stream", filename=name)


@router.get("/{job_id}/log", response_class=PlainTextResponse)
def job_log(job_id: _Id, request: Request, caller: ByUser) -> str:
    """The last lines of the log of a job's run; empty where there is none."""
    job = request.app.state.jobs.of(caller.user, job_id)
    try:
        lines = deque(read_log(log_file(request.app.state.home.root, job.job_id)), _LOG_LINES)
    except InputError:
        return ""
    return "".join(f"{line}\n" for line in lines)
