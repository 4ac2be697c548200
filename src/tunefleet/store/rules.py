"""What follows from a committed stage: the rules every store applies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tunefleet.core.ids import canonical_json
from tunefleet.core.job import JobState
from tunefleet.core.stage import (
    BuildResult,
    ProfileResult,
    SelectResult,
    StageKind,
    StageResult,
    StageRun,
    UpdateResult,
    WorkKind,
)
from tunefleet.core.step import RESULT_OF, StepRun
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Failure, Measurement, Trial
from tunefleet.errors import InputError, InternalError

RESULT_TYPES: dict[WorkKind, type[StageResult]] = {
    StageKind.SELECT: SelectResult,
    StageKind.BUILD: BuildResult,
    StageKind.PROFILE: ProfileResult,
    StageKind.UPDATE: UpdateResult,
}


def check_result(run: StageRun) -> None:
    """Raises InternalError when the result is not that of the stage's kind."""
    expected = RESULT_TYPES.get(run.key.kind)
    if expected is None or not isinstance(run.result, expected):
        raise InternalError(f"{run.key} was committed with a {type(run.result).__name__}")


def check_step(run: StepRun) -> None:
    """Raises InternalError when the result is not that of the step's kind."""
    if not isinstance(run.result, RESULT_OF[run.key.kind]):
        raise InternalError(f"{run.key} was committed with a {type(run.result).__name__}")


def outcomes(result: StageResult) -> dict[str, tuple[Measurement | Failure, float]]:
    """candidate id -> (outcome, profile seconds) of the trials a stage makes, in their order."""
    by_candidate: dict[str, tuple[Measurement | Failure, float]] = {}
    if isinstance(result, ProfileResult):
        for candidate_id, measurement, profile_s in result.measured:
            by_candidate.setdefault(candidate_id, (measurement, profile_s))
    if isinstance(result, ProfileResult | BuildResult):
        for candidate_id, failure in result.failed:
            by_candidate.setdefault(candidate_id, (failure, 0.0))
    return by_candidate


def json_value(value: Any, what: str) -> Any:
    """The value as it reads back from JSON; raises InputError when it is none."""
    try:
        return json.loads(canonical_json(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} is not a JSON value: {error}") from error


def unknown_job(job_id: str) -> InputError:
    return InputError(f"no job {job_id} in the store", cure="see the list of jobs")


def unknown_task(task_id: str, job_id: str = "") -> InputError:
    return InputError(f"no task {task_id} in {f'job {job_id}' if job_id else 'the store'}")


def unknown_user(name: str) -> InputError:
    return InputError(f"no user {name}", cure="see the list of users")


def known_webhook(webhook_id: str) -> InputError:
    return InputError(f"there is a webhook {webhook_id}", cure="make a new id")


def not_selected(run: StageRun, candidate_id: str) -> InternalError:
    return InternalError(f"{run.key} reports candidate {candidate_id}, which was not selected")


def taken(job_id: str) -> InputError:
    return InputError(f"job {job_id} exists already", cure="name the new job otherwise")


def check_distinct(tasks: Sequence[WeightedTask]) -> None:
    """Raises InputError when a task stands twice among those of one job."""
    seen: set[str] = set()
    for weighted in tasks:
        if weighted.task.task_id in seen:
            raise InputError(
                f"task {weighted.task.task_id} ({weighted.task.name}) is put twice",
                cure="add the weights",
            )
        seen.add(weighted.task.task_id)


def check_limit(limit: int) -> None:
    if limit < 0:
        raise InputError(f"the limit of records is {limit}", cure="give 0 or more")


def check_window(start: float, end: float) -> None:
    if not start <= end:
        raise InputError(f"the window from {start} to {end} ends before it starts")


def check_winner(winner: Trial | None) -> None:
    if winner is not None and winner.latency_s is None:
        raise InputError(
            f"candidate {winner.candidate.candidate_id} failed and cannot win",
            cure="select a measured trial, or None for the default",
        )


def check_closing(state: JobState) -> None:
    if state is JobState.RUNNING:
        raise InputError(
            "a job is closed as succeeded, failed, cancelled or expired, not as running"
        )
