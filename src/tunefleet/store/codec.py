"""Values of `core` as rows and back. A row that holds no such value raises UnreadableError."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec
from sqlalchemy import Row, type_coerce

from tunefleet.core.coordination import Claim, ControlRequest
from tunefleet.core.ids import digest
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.stage import (
    SelectResult,
    StageKey,
    StageKind,
    StageResult,
    StageRun,
    StageSpan,
    UpdateResult,
    WorkKind,
)
from tunefleet.core.step import (
    RESULT_OF,
    Remark,
    StepKey,
    StepKind,
    StepResult,
    StepRun,
)
from tunefleet.core.target import Target
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Candidate, Failure, FailureKind, Measurement, Trial
from tunefleet.store._coordination import Entry
from tunefleet.store._learnings import Learning
from tunefleet.store.columns import PlainText, json_of
from tunefleet.store.database import UnreadableError
from tunefleet.store.rules import RESULT_TYPES
from tunefleet.store.schema import (
    candidates,
    jobs,
    stages,
    steps,
    trials,
    winners,
)

P = ParamSpec("P")
T = TypeVar("T")

#: The columns `job_of` reads; the specification as text.
JOB = (
    jobs.c.job_id,
    type_coerce(jobs.c.spec, PlainText).label("spec"),
    jobs.c.state,
    jobs.c.created_at,
    jobs.c.elapsed_s,
)
#: The columns `candidate_of` reads, with those that say where the score is found.
CANDIDATE = (candidates.c.candidate_id, candidates.c.trace, candidates.c.features)
#: The columns `trial_of` reads.
TRIAL = (
    *CANDIDATE,
    trials.c.score,
    trials.c.iteration,
    trials.c.outcome,
    trials.c.build_s,
    trials.c.profile_s,
)
#: The columns `span_of` reads.
SPAN = (
    stages.c.job_id,
    stages.c.task_id,
    stages.c.iteration,
    stages.c.kind,
    stages.c.resource_id,
    stages.c.attempt,
    stages.c.started_at,
    stages.c.seconds,
)
WINNER = (
    *CANDIDATE,
    winners.c.score,
    winners.c.iteration,
    winners.c.outcome,
    winners.c.build_s,
    winners.c.profile_s,
)


def _reading(function: Callable[P, T]) -> Callable[P, T]:
    """For what makes a value of what a row has, and does nothing else: its errors are the row's."""

    @functools.wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except UnreadableError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnreadableError(f"a row is not what was written: {error}") from error

    return read


def check_values(table: str, values: Mapping[str, Any]) -> None:
    """Raises UnreadableError where the columns of a row, decoded, are no value that is read of
    them."""
    if table == jobs.name:
        spec_of(values["spec"])
        _state_of(values["state"])
    elif table == stages.name:
        result_of(_kind_of(values["kind"]), values["result"], ())
    elif table == steps.name:
        _step_result(values["kind"], values["result"])
    elif values.get("outcome") is not None:
        outcome_of(values["outcome"])


@_reading
def _state_of(value: str) -> JobState:
    return JobState(value)


@_reading
def _kind_of(value: str) -> StageKind:
    return StageKind(value)


def job_row(spec: JobSpec, job_id: str, now: float) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "fingerprint": spec.fingerprint,
        "state": JobState.RUNNING.value,
        "created_at": now,
        "elapsed_s": 0.0,
        "device_exact": spec.device.exact,
        "device_compatible": spec.device.compatible,
        "toolchain_exact": spec.toolchain.exact,
        "toolchain_compatible": spec.toolchain.compatible,
        "shared": int(spec.shared),
        "tenant": spec.tenant,
        "spec": {**msgspec.to_builtins(spec), "target": spec.target.to_json()},
    }


@_reading
def job_of(row: Row[Any]) -> Job:
    """Of the columns `JOB`."""
    return Job(row.job_id, _spec_in(row.spec), JobState(row.state), row.created_at, row.elapsed_s)


@functools.lru_cache(maxsize=1024)
def _spec_in(text: str) -> JobSpec:
    """Lists of jobs are read again and again, and reading a specification is what takes longest."""
    return spec_of(json_of(text))


@_reading
def spec_of(value: Any) -> JobSpec:
    return msgspec.convert(value, JobSpec, dec_hook=lambda _, target: Target.from_json(target))


def task_row(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "operator": task.operator,
        "shapes": task.shapes,
        "flops": task.flops,
        "program": task.program,
        "precision": task.precision,
    }


@_reading
def task_of(row: Row[Any]) -> WeightedTask:
    of_task = (row.task_id, row.name, row.operator, row.shapes, row.flops, row.program)
    return WeightedTask(Task(*of_task, row.precision), row.weight)


def job_task_row(job_id: str, position: int, weighted: WeightedTask) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "position": position,
        "task_id": weighted.task.task_id,
        "name": weighted.task.name,
        "weight": weighted.weight,
    }


def content_of(candidate: Candidate) -> str:
    """What tells two rows of one candidate id apart."""
    return digest([digest(candidate.trace), digest(candidate.features)])


def candidate_row(task_id: str, candidate: Candidate) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "candidate_id": candidate.candidate_id,
        "content": content_of(candidate),
        "trace": candidate.trace,
        "features": candidate.features,
    }


def score_column(score: float) -> float | None:
    """SQLite knows no not-a-number; NULL stands for it."""
    return None if math.isnan(score) else score


def candidate_of(candidate_id: str, trace: str, features: bytes, score: float | None) -> Candidate:
    return Candidate(candidate_id, trace, math.nan if score is None else score, features)


def outcome_row(outcome: Measurement | Failure) -> dict[str, Any]:
    """The outcome in full, and what queries ask of it."""
    if isinstance(outcome, Failure):
        value: dict[str, Any] = {"kind": outcome.kind.value, "text": outcome.text}
        return {"outcome": value, "latency_s": None, "failure": outcome.kind.value}
    value = {"latencies_s": outcome.latencies_s, "drift": outcome.drift}
    if outcome.shared:
        value["shared"] = True
    return {"outcome": value, "latency_s": outcome.latency_s, "failure": None}


@_reading
def outcome_of(value: dict[str, Any]) -> Measurement | Failure:
    if "kind" in value:
        return Failure(FailureKind(value["kind"]), value["text"])
    shared = value.get("shared", False)
    return Measurement(tuple(value["latencies_s"]), value["drift"], shared)


def winner_row(winner: Trial, key: int) -> dict[str, Any]:
    return {
        "candidate": key,
        "iteration": winner.iteration,
        "score": score_column(winner.candidate.score),
        "build_s": winner.build_s,
        "profile_s": winner.profile_s,
        "latency_s": winner.latency_s,
        "outcome": outcome_row(winner.outcome)["outcome"],
    }


@_reading
def trial_of(columns: Iterable[Any]) -> Trial:
    """Of the columns `TRIAL` or `WINNER`; by position, a job has thousands of them."""
    candidate_id, trace, features, score, iteration, outcome, build_s, profile_s = columns
    candidate = candidate_of(candidate_id, trace, features, score)
    return Trial(candidate, iteration, outcome_of(outcome), build_s, profile_s)


def result_value(result: StageResult) -> Any:
    """The result as JSON, less the candidates and the model: they have tables of their own."""
    if isinstance(result, SelectResult):
        return {"exhausted": result.exhausted}
    if isinstance(result, UpdateResult):
        return {"trained_on": result.trained_on}
    return msgspec.to_builtins(result)


@_reading
def result_of(kind: WorkKind, value: Any, selected: tuple[Candidate, ...]) -> StageResult:
    if kind is StageKind.SELECT:
        return SelectResult(selected, value["exhausted"])
    return msgspec.convert(value, RESULT_TYPES[kind])


@_reading
def update_of(model: bytes, value: Any) -> UpdateResult:
    return UpdateResult(model, value["trained_on"])


@_reading
def run_of(row: Row[Any], selected: tuple[Candidate, ...] = ()) -> StageRun:
    key = StageKey(row.job_id, row.task_id, row.iteration, StageKind(row.kind))
    result = result_of(key.kind, row.result, selected)
    return StageRun(
        key, result, row.started_at, row.seconds, row.note, row.resource_id, row.attempt
    )


@_reading
def span_of(columns: Iterable[Any]) -> StageSpan:
    """Of the columns `SPAN`."""
    job_id, task_id, iteration, kind, *ran = columns
    return StageSpan(StageKey(job_id, task_id, iteration, StageKind(kind)), *ran)


def step_row(run: StepRun) -> dict[str, Any]:
    return {
        "owner": run.key.owner,
        "kind": run.key.kind.value,
        "started_at": run.started_at,
        "seconds": run.seconds,
        "resource_id": run.resource_id,
        "attempt": run.attempt,
        "remarks": msgspec.to_builtins(run.remarks),
        "result": msgspec.json.encode(run.result).decode(),
    }


@_reading
def step_of(row: Row[Any]) -> StepRun:
    key = StepKey(row.owner, StepKind(row.kind))
    remarks = msgspec.convert(row.remarks, tuple[Remark, ...])
    return StepRun(
        key,
        _step_result(row.kind, row.result),
        row.started_at,
        row.seconds,
        remarks,
        row.resource_id,
        row.attempt,
    )


@_reading
def _step_result(kind: str, text: str) -> StepResult:
    result: StepResult = msgspec.json.decode(text, type=RESULT_OF[StepKind(kind)])
    return result


def claim_row(claim: Claim, boot: str, now: float) -> dict[str, Any]:
    """Of a claim that waits."""
    return {
        "claim_id": claim.claim_id,
        "boot": boot,
        "granted": 0,
        "since": now,
        "expires_at": now,
        "claim": {**msgspec.to_builtins(claim), "units": sorted(claim.units)},
    }


@_reading
def claim_of(row: Row[Any]) -> Entry:
    claim = msgspec.convert(row.claim, Claim)
    return Entry(row.seq, claim, bool(row.granted), row.since, row.expires_at)


@_reading
def request_of(value: str) -> ControlRequest:
    return ControlRequest(value)


@_reading
def learning_of(value: Any) -> Learning:
    return msgspec.convert(value, Learning)


# msgspec looks at a class when it is first asked for it, and crashes where two threads ask at once.
for _kind in (
    JobSpec,
    Claim,
    Learning,
    tuple[Remark, ...],
    *RESULT_TYPES.values(),
    *RESULT_OF.values(),
):
    msgspec.json.Decoder(_kind, dec_hook=lambda _, target: Target.from_json(target))
