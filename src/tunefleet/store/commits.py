"""What the commit of a stage writes, and how a stage is read back; inside a transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, insert, literal, select, update

from tunefleet.core.stage import (
    BuildResult,
    SelectResult,
    StageKey,
    StageKind,
    StageRun,
    StageSpan,
    UpdateResult,
)
from tunefleet.core.trial import Candidate
from tunefleet.store import codec
from tunefleet.store.origins import origin_of
from tunefleet.store.rules import not_selected, outcomes
from tunefleet.store.schema import candidates, jobs, models, selections, stages, trials


def write_run(
    connection: Connection, run: StageRun, elapsed_s: float, committed: int | None = None
) -> None:
    """The stage and all that follows from it; in place of the row `committed`, if there is one."""
    key, result = run.key, run.result
    row = {
        "job_id": key.job_id,
        "task_id": key.task_id,
        "iteration": key.iteration,
        "kind": key.kind.value,
        "started_at": run.started_at,
        "seconds": run.seconds,
        "note": run.note,
        "result": codec.result_value(result),
        "resource_id": run.resource_id,
        "attempt": run.attempt,
    }
    if committed is None:
        inserted = insert(stages).values(row).returning(stages.c.seq)
        seq = connection.execute(inserted).scalar_one()
    else:
        seq = committed
        connection.execute(update(stages).where(stages.c.seq == seq).values(row))
    if isinstance(result, SelectResult):
        _write_selection(connection, seq, key.task_id, result.candidates)
    elif isinstance(result, UpdateResult):
        if result.model:
            row = {"stage": seq, "job_id": key.job_id, "model": result.model}
            connection.execute(insert(models).values(row))
    else:
        _write_trials(connection, seq, run)
    connection.execute(
        update(jobs)
        .where(jobs.c.job_id == key.job_id, jobs.c.elapsed_s < elapsed_s)
        .values(elapsed_s=elapsed_s)
    )


def candidate_keys(connection: Connection, task_id: str, wanted: Sequence[Candidate]) -> list[int]:
    """The row of each candidate in the table that all jobs share, entered where it is new."""
    keys = _known(connection, task_id, wanted)
    rows = {(c.candidate_id, codec.content_of(c)): c for c in wanted}
    missing = [codec.candidate_row(task_id, c) for name, c in rows.items() if name not in keys]
    if missing:
        connection.execute(insert(candidates), missing)
        keys = _known(connection, task_id, wanted)
    return [keys[c.candidate_id, codec.content_of(c)] for c in wanted]


def read_run(connection: Connection, key: StageKey) -> StageRun | None:
    """A stage as it was committed."""
    row = connection.execute(select(stages).where(*_is(key))).one_or_none()
    if row is None:
        return None
    if key.kind is StageKind.SELECT:
        chosen = connection.execute(
            select(*codec.CANDIDATE, selections.c.score)
            .join_from(selections, candidates)
            .where(selections.c.stage == row.seq)
            .order_by(selections.c.position)
        )
        return codec.run_of(row, tuple(codec.candidate_of(*c) for c in chosen))
    run = codec.run_of(row)
    if isinstance(run.result, UpdateResult):
        model = connection.scalar(select(models.c.model).where(models.c.stage == row.seq))
        return replace(run, result=replace(run.result, model=model or b""))
    return run


def read_runs(connection: Connection, job_id: str) -> list[StageRun]:
    """The log of a job, less features and models."""
    chosen = connection.execute(
        select(
            selections.c.stage,
            candidates.c.candidate_id,
            candidates.c.trace,
            literal(b""),
            selections.c.score,
        )
        .join_from(selections, candidates)
        .join(stages, stages.c.seq == selections.c.stage)
        .where(stages.c.job_id == job_id)
        .order_by(selections.c.stage, selections.c.position)
    )
    selected: dict[int, list[Candidate]] = defaultdict(list)
    for stage, *columns in chosen:
        selected[stage].append(codec.candidate_of(*columns))
    rows = connection.execute(
        select(stages).where(stages.c.job_id == job_id).order_by(stages.c.seq)
    )
    return [codec.run_of(row, tuple(selected[row.seq])) for row in rows]


def read_spans(connection: Connection, start: float, end: float) -> list[StageSpan]:
    rows = connection.execute(
        select(*codec.SPAN)
        .where(stages.c.started_at <= end, stages.c.started_at + stages.c.seconds >= start)
        .order_by(stages.c.started_at, stages.c.seq)
    )
    return [codec.span_of(row) for row in rows]


def committed(connection: Connection, key: StageKey) -> int | None:
    """The row of a stage, if it is committed."""
    return connection.scalar(select(stages.c.seq).where(*_is(key)))


def _write_selection(
    connection: Connection, seq: int, task_id: str, chosen: Sequence[Candidate]
) -> None:
    keys = candidate_keys(connection, task_id, chosen)
    rows = [
        {"stage": seq, "position": i, "candidate": key, "score": codec.score_column(c.score)}
        for i, (key, c) in enumerate(zip(keys, chosen, strict=True))
    ]
    if rows:
        connection.execute(insert(selections), rows)


def _write_trials(connection: Connection, seq: int, run: StageRun) -> None:
    key = run.key
    by_candidate = outcomes(run.result)
    selected = _selected(connection, key)
    built_s = _build_seconds(connection, key)
    tried = set(
        connection.scalars(
            select(trials.c.candidate_id).where(
                trials.c.job_id == key.job_id,
                trials.c.task_id == key.task_id,
                trials.c.candidate_id.in_(by_candidate),
            )
        )
    )
    origin = origin_of(connection, key.job_id, key.task_id) if by_candidate else None
    rows = []
    for candidate_id, (outcome, profile_s) in by_candidate.items():
        if candidate_id not in selected:
            raise not_selected(run, candidate_id)
        if candidate_id in tried:
            continue
        candidate, score = selected[candidate_id]
        rows.append(
            {
                "job_id": key.job_id,
                "task_id": key.task_id,
                "candidate_id": candidate_id,
                "candidate": candidate,
                "stage": seq,
                "iteration": key.iteration,
                "score": score,
                "build_s": built_s.get(candidate_id, 0.0),
                "profile_s": profile_s,
                "origin": origin,
                **codec.outcome_row(outcome),
            }
        )
    if rows:
        connection.execute(insert(trials), rows)


def _selected(connection: Connection, key: StageKey) -> dict[str, tuple[int, float | None]]:
    """candidate id -> (row, score) of the select stage of the same iteration."""
    rows = connection.execute(
        select(candidates.c.candidate_id, candidates.c.key, selections.c.score)
        .join_from(selections, candidates)
        .join(stages, stages.c.seq == selections.c.stage)
        .where(*_is(replace(key, kind=StageKind.SELECT)))
        .order_by(selections.c.position.desc())
    )
    return {candidate_id: (row, score) for candidate_id, row, score in rows}


def _build_seconds(connection: Connection, key: StageKey) -> dict[str, float]:
    """Of a profile stage, what the build of the same iteration took; of a build, nothing."""
    build = replace(key, kind=StageKind.BUILD)
    if build == key:
        return {}
    row = connection.execute(select(stages).where(*_is(build))).one_or_none()
    result = codec.run_of(row).result if row is not None else BuildResult(())
    assert isinstance(result, BuildResult)
    return {built.candidate_id: built.build_s for built in result.built}


def _known(
    connection: Connection, task_id: str, wanted: Sequence[Candidate]
) -> dict[tuple[str, str], int]:
    columns = (candidates.c.candidate_id, candidates.c.content, candidates.c.key)
    rows = connection.execute(
        select(*columns).where(
            candidates.c.task_id == task_id,
            candidates.c.candidate_id.in_({c.candidate_id for c in wanted}),
        )
    )
    return {(candidate_id, content): key for candidate_id, content, key in rows}


def _is(key: StageKey) -> tuple[ColumnElement[bool], ...]:
    return (
        stages.c.job_id == key.job_id,
        stages.c.task_id == key.task_id,
        stages.c.iteration == key.iteration,
        stages.c.kind == key.kind.value,
    )
