"""Pages on jobs: the list, one job, and a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from fastapi import Path, Query, Request
from starlette.responses import Response

from tunefleet.core.events import Event
from tunefleet.core.job import JobKind
from tunefleet.core.result import Evaluation, MeasuredShape, RunResult
from tunefleet.errors import InputError
from tunefleet.report.result import read_evaluation, read_result
from tunefleet.service.caller import ByUser
from tunefleet.service.pages import page_router, show
from tunefleet.service.problems import Refused
from tunefleet.service.routes_artifacts import get_artifact
from tunefleet.service.routes_jobs import job_log, job_tasks, list_jobs
from tunefleet.service.values import JobColumn, JobView, ServiceState

router = page_router()

_Id = Annotated[str, Path(pattern=r"^[0-9a-f]{6,32}$")]
#: Jobs of a page, lines of a log that are shown, jobs side by side.
_JOBS, _LOG_LINES, _SIDE_BY_SIDE = 50, 200, 4
#: The names of events in a stream.
_KINDS = " ".join(kind.__name__ for kind in Event.__args__)
_ENDED = (
    ServiceState.SUCCEEDED,
    ServiceState.FAILED,
    ServiceState.CANCELLED,
    ServiceState.EXPIRED,
)
#: Requests that each state of a job allows.
_ACTIONS = {
    ServiceState.QUEUED: ("pause", "cancel"),
    ServiceState.RUNNING: ("pause", "cancel"),
    ServiceState.PAUSED: ("resume", "cancel"),
    ServiceState.CANCELLING: (),
}


@router.get("/jobs")
def jobs_page(
    request: Request,
    caller: ByUser,
    state: ServiceState | None = None,
    cursor: Annotated[str, Query(pattern=r"^([0-9a-f]{6,32})?$")] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    sort: JobColumn = JobColumn.SUBMITTED,
    ascending: bool = False,
) -> Response:
    """One's jobs, newest first, or as the address filters and sorts them."""
    page = list_jobs(request, caller, state, cursor, _JOBS, text, sort, ascending)
    filters = {name: value for name, value in (("state", state), ("text", text)) if value}
    sorting = {"sort": sort.value, "ascending": str(ascending).lower()}
    chosen = filters | (sorting if ascending or sort is not JobColumn.SUBMITTED else {})
    return show(
        request,
        caller,
        "jobs.html",
        jobs=page.jobs,
        states=list(ServiceState),
        state_chosen=state,
        text=text,
        sort=sort,
        ascending=ascending,
        sortings={column: _sorted_by(column, sort, ascending, filters) for column in JobColumn},
        of_newest=page.of_newest,
        chosen=chosen,
        without_state={name: value for name, value in chosen.items() if name != "state"},
        here={**chosen, **({"cursor": cursor} if cursor else {})},
        next=None if page.next is None else {**chosen, "cursor": page.next},
    )


def _sorted_by(column: JobColumn, sort: JobColumn, ascending: bool, filters: dict[str, str]) -> str:
    """The address of the list sorted by a column; reversed where it is sorted by it already."""
    falls = column in (JobColumn.SUBMITTED, JobColumn.SPEEDUP, JobColumn.TRIALS)
    other_way = not ascending if column is sort else not falls
    return urlencode({**filters, "sort": column.value, "ascending": str(other_way).lower()})


@router.get("/jobs/{job_id}")
def job_page(job_id: _Id, request: Request, caller: ByUser) -> Response:
    """The progress, the result and the artifact of a job."""
    state = request.app.state
    job = state.jobs.of(caller.user, job_id)
    view: JobView = state.jobs.view(job)
    result, history = _result(view), state.histories.of(job.job_id)
    artifact = get_artifact(view.artifact, request, caller) if view.artifact else None
    return show(
        request,
        caller,
        "job.html",
        view=view,
        is_open=view.state not in _ENDED,
        actions=_ACTIONS.get(view.state, ("retry",)),
        agreed=agreed_texts(view),
        result=result,
        shapes=_shapes(result),
        tasks=_task_rows(job_tasks(job_id, request, caller)["tasks"], result),
        samples=history.samples,
        forecast=history.forecast if view.state not in _ENDED else None,
        queue=state.jobs.queue(job) if _begins(view) else None,
        latest=history.latest[::-1],
        seq=history.seq,
        kinds=_KINDS,
        log=job_log(job_id, request, caller).splitlines()[-_LOG_LINES:],
        artifact=artifact,
    )


@router.get("/compare")
def compare_page(
    request: Request,
    caller: ByUser,
    job: Annotated[list[str] | None, Query(max_length=_SIDE_BY_SIDE)] = None,
) -> Response:
    """Two to four jobs side by side."""
    chosen = list(dict.fromkeys(job or ()))
    if len(chosen) < 2:
        raise Refused(422, "two to four jobs are compared", cure="choose them in the list of jobs")
    jobs = request.app.state.jobs
    found = [jobs.of(caller.user, each) for each in chosen]
    views = [jobs.view(each) for each in found]
    return show(
        request,
        caller,
        "compare.html",
        views=views,
        names=[f"{view.network} ({view.id[:8]})" for view in views],
        agreed=[agreed_texts(view) for view in views],
        results=[_result(view) for view in views],
        samples=[request.app.state.histories.of(each.job_id).samples for each in found],
    )


def _begins(view: JobView) -> bool:
    """Whether only the estimate of the queue is known yet."""
    goes_on = view.state in (ServiceState.QUEUED, ServiceState.RUNNING)
    return goes_on and view.forecast is None and not view.trials


def agreed_texts(view: JobView) -> list[str]:
    """The agreement and the budget of a job, a phrase each."""
    agreed, budget = view.agreement, view.budget
    phrases = []
    if agreed.get("latency_ms"):
        phrases.append(f"at most {agreed['latency_ms']:.3g} ms for an inference")
    if agreed.get("speedup"):
        phrases.append(f"at least {agreed['speedup']:.3g} times as fast as its source framework")
    if agreed.get("most_lost"):
        phrases.append(f"outputs that differ by {agreed['most_lost']:.2g} at most")
    if budget.get("trials"):
        phrases.append(f"at most {budget['trials']:,} trials")
    if budget.get("trials_per_task"):
        phrases.append(f"at most {budget['trials_per_task']:,} trials of each task")
    if budget.get("seconds"):
        phrases.append(f"as fast as possible in {_minutes(budget['seconds'])}")
    if budget.get("device_seconds"):
        phrases.append(f"at most {_minutes(budget['device_seconds'])} of the device")
    return phrases


def _minutes(seconds: float) -> str:
    minutes = f"{seconds / 60:.3g}"
    return f"{minutes} minute{'' if minutes == '1' else 's'}"


def _result(view: JobView) -> RunResult | Evaluation | None:
    """The result of a job as pages show it."""
    try:
        if view.result is None or view.kind in (JobKind.RUN, JobKind.PLACE):
            return None
        if view.kind == JobKind.EVALUATE:
            return read_evaluation(view.result)
        return read_result(view.result, f"job {view.id[:8]}")
    except (InputError, msgspec.ValidationError):
        return None


def _shapes(result: RunResult | Evaluation | None) -> Sequence[MeasuredShape]:
    if result is None:
        return ()
    if isinstance(result, RunResult):
        return result.measured_shapes
    return [shape for shape in result.shapes or (result,) if shape.tuned_ms is not None]


def _task_rows(
    tasks: Sequence[dict[str, Any]], result: RunResult | Evaluation | None
) -> list[dict[str, Any]]:
    """The tasks, those that take most of an inference first; `before_s` and `of_limit` are set
    once there is a result."""
    judged = {each.task_id: each for each in getattr(result, "tasks", ())}
    rows = []
    for task in tasks:
        ended = judged.get(task["task_id"])
        after_us = ended.latency_us if ended else None
        now_s = task["best_s"] if after_us is None else after_us / 1e6
        before_s = ended.default_us / 1e6 if ended and ended.default_us else None
        rows.append(
            {
                **task,
                "best_s": now_s,
                "before_s": before_s,
                "gain": before_s / now_s if before_s and now_s else None,
                "of_limit": ended.limit_share if ended else None,
                "takes_s": now_s * task["weight"] if now_s else None,
            }
        )
    total_s = sum(row["takes_s"] or 0.0 for row in rows)
    complete = bool(rows) and all(row["takes_s"] for row in rows)
    for row in rows:
        row["share"] = row["takes_s"] / total_s if complete else None
    return sorted(rows, key=lambda row: -(row["takes_s"] or 0.0))
