"""What is sent to a host and what it answers, as JSON values: ids and keys, whose rest both sides
read from the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tunefleet.core.coordination import Lease
from tunefleet.core.stage import StageKey, StageKind
from tunefleet.errors import (
    InputError,
    InternalError,
    SetupError,
    TunefleetError,
    error_named,
    internal,
)
from tunefleet.fleet.executor import Assignment, Report
from tunefleet.scheduler.values import End, Resource, Role
from tunefleet.stages.place import JobTask, LostInputError
from tunefleet.store import Store

#: Raised where what an older version sends is read otherwise.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class _Work:
    """`resource` is the name that its host has for the resource."""

    resource: str
    job_id: str
    task_id: str
    iteration: int
    kind: StageKind
    attempt: int
    batch: int
    elapsed_s: float
    again: bool
    job_lease: Lease | None
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class _Error:
    kind: str
    what: str
    cure: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class _Lost:
    kind: StageKind
    text: str


@dataclass(frozen=True, slots=True)
class _Answer:
    end: End
    seconds: float
    error: _Error | None = None
    lost: _Lost | None = None
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource that a host offers under a name of its own."""

    name: str
    role: Role
    kind: str
    schema: int = SCHEMA

    def resource_of(self, host: str) -> Resource:
        """As a scheduler knows it: no unit of it is one of another machine."""
        name = f"{host}/{self.name}"
        return Resource(name, self.role, self.kind, frozenset({name}))


def offers_value(offers: list[Offer]) -> Any:
    return msgspec.to_builtins(offers)


def offers_of(value: Any) -> list[Offer]:
    """Those that this version knows."""
    known = [each for each in value if each["schema"] <= SCHEMA]
    return msgspec.convert(known, list[Offer])


def assignment_value(assignment: Assignment, resource: str, job_lease: Lease | None) -> Any:
    """A stage of a task, for a resource of a host."""
    key = assignment.key
    work = _Work(
        resource,
        key.job_id,
        key.task_id,
        key.iteration,
        StageKind(key.kind),
        assignment.attempt,
        assignment.batch,
        assignment.elapsed_s,
        assignment.again,
        job_lease,
    )
    return msgspec.to_builtins(work)


def assignment_of(store: Store, number: int, value: Any) -> tuple[str, Assignment]:
    """The resource, and the assignment whose lease is its number here. Raises SetupError for one
    that a newer version sends."""
    work = _read(value, _Work)
    job = store.jobs.get(work.job_id)
    tasks = {weighted.task.task_id: weighted.task for weighted in store.work.tasks(work.job_id)}
    if work.task_id not in tasks:
        raise InputError(f"job {work.job_id} has no task {work.task_id}", cure="give the job again")
    assignment = Assignment(
        key=StageKey(work.job_id, work.task_id, work.iteration, work.kind),
        lease=number,
        attempt=work.attempt,
        lane=JobTask(job, tasks[work.task_id]),
        batch=work.batch,
        elapsed_s=work.elapsed_s,
        again=work.again,
        job_lease=work.job_lease,
    )
    return work.resource, assignment


def report_value(report: Report) -> Any:
    """Without the result, which is in the store."""
    error = None if report.error is None else _error(report.error)
    lost = None
    if report.lost is not None:
        lost = _Lost(StageKind(report.lost.kind), str(report.lost))
    return msgspec.to_builtins(_Answer(report.end, report.seconds, error, lost))


def refusal_value(error: Exception) -> Any:
    """The answer of a host that cannot begin what it was given."""
    return msgspec.to_builtins(_Answer(End.FAILED, 0.0, _error(error)))


def report_of(store: Store, assignment: Assignment, value: Any) -> Report:
    """The report on an assignment, with what is committed of it."""
    answer = _read(value, _Answer)
    run = store.work.stage(assignment.key) if answer.end is End.DONE else None
    lost = None if answer.lost is None else LostInputError(answer.lost.kind, answer.lost.text)
    error = None
    if answer.error is not None:
        error = error_named(answer.error.kind)(answer.error.what, cure=answer.error.cure)
        if isinstance(error, InternalError):
            error.details = answer.error.details
    return Report(assignment, answer.end, answer.seconds, run, error, lost)


def _error(error: Exception) -> _Error:
    known = error if isinstance(error, TunefleetError) else internal(error)
    details = known.details if isinstance(known, InternalError) else ""
    return _Error(type(known).__name__, known.what, known.cure, details)


def _read(value: Any, kind: type[Any]) -> Any:
    if value.get("schema", SCHEMA) > SCHEMA:
        raise SetupError(
            "the other side is a newer tunefleet", cure="use the same version on all hosts"
        )
    return msgspec.convert(value, kind)
