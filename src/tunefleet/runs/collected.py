"""Trials of the store as rows of `tunefleet-records/1`, the way MetaSchedule's logs are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.forms import intrinsic_of, kind_of, tile_of
from tunefleet.core.job import Job, JobState
from tunefleet.core.stage import StageKind
from tunefleet.core.trial import Failure, FailureKind
from tunefleet.errors import raise_mistake

if TYPE_CHECKING:
    import pyarrow as pa

    from tunefleet.core.task import Task
    from tunefleet.core.trial import Trial
    from tunefleet.store import Store

#: The numbers that auto_scheduler gives to failures (measure_record.cc).
ERROR_NO = {
    FailureKind.INSTANTIATE: 1,
    FailureKind.BUILD_ERROR: 2,
    FailureKind.BUILD_CRASH: 2,
    FailureKind.BUILD_MEMORY: 2,
    FailureKind.RUN_ERROR: 4,
    FailureKind.RUN_CRASH: 4,
    FailureKind.RUN_MEMORY: 4,
    FailureKind.WRONG_ANSWER: 5,
    FailureKind.BUILD_TIMEOUT: 6,
    FailureKind.RUN_TIMEOUT: 7,
}
_VERSION = "tunefleet-1"


def write_jobs(out: Path, store: Store, jobs: Iterable[Job]) -> int:
    """Write every trial of the jobs to a Parquet file and return how many there were.

    `costs_s` are all repeats, and empty for a failure, whose kind and text are in `extra` with
    the task's name, operator, FLOPs and occurrences, the tensor intrinsic, and who measured.
    """
    from tunefleet.dataset import parquet
    from tunefleet.dataset.files import Draft

    with Draft(out) as draft:
        return parquet.write(batches_of(store, jobs), draft)


def write_ended(folder: Path, store: Store) -> tuple[list[Path], int]:
    """Write the trials of each job that has ended to a file of its own, which is the same whenever
    it is written; returns those files, and how many jobs have not ended. Jobs are the home's own,
    and those of users who share their records with all.

    A job that goes on would be another file later, with trials that were in this one.
    """
    from tunefleet.store import each_job

    owners = store.explorer.owners("")
    own = (job for job in each_job(store.jobs) if job.spec.tenant in owners)
    jobs = [job for job in own if not job.spec.shared][::-1]
    ended = [job for job in jobs if job.state is not JobState.RUNNING]
    files = [(folder / f"{job.job_id}.parquet", job) for job in ended]
    written = [path for path, job in files if write_jobs(path, store, [job])]
    return written, len(jobs) - len(ended)


def batches_of(store: Store, jobs: Iterable[Job]) -> Iterator[pa.RecordBatch]:
    """One batch per job that has trials; the trials of a task follow each other."""
    from tunefleet.dataset.codecs.rows import batch_of

    for job in jobs:
        rows = [row for index, w in enumerate(store.work.tasks(job.job_id))
                for row in _rows(store, job, index, w.task, w.weight)]  # fmt: skip
        if rows:
            device = job.spec.device.key or job.spec.device.name
            # Where a file lies on this machine tells others nothing.
            source = Path(job.spec.network.source).name
            yield batch_of(rows, "metaschedule", source, device)


def _rows(store: Store, job: Job, index: int, task: Task, weight: int) -> Iterator[Any]:
    from tunefleet.compiler.space.padded_rows import form_of
    from tunefleet.compiler.toolchain.host import target_json
    from tunefleet.compiler.toolchain.programs import database_entry, load_program
    from tunefleet.dataset.codecs.metaschedule import steps_of
    from tunefleet.dataset.codecs.rows import Row

    trials = store.records.trials(job.job_id, task.task_id)
    if not trials:
        return
    # There each form of a task is a workload of its own.
    entries: dict[tuple[int, tuple[int, int]], Any] = {}
    target = json.dumps(target_json(job.spec.target), separators=(",", ":"), sort_keys=True)
    ended = {
        run.key.iteration: run.started_at + run.seconds
        for run in store.work.stages(job.job_id)
        if run.key.task_id == task.task_id and run.key.kind is StageKind.PROFILE
    }
    known = {
        "workload_index": index,
        "task_id": task.task_id,
        "task": task.name,
        "operator": task.operator,
        "flops": task.flops,
        "weight": weight,
        "device": job.spec.device.to_json(),
        "toolchain": job.spec.toolchain.to_json(),
    }
    for number, trial in enumerate(trials, 1):
        trace = trial.candidate.trace
        form = kind_of(trace), tile_of(trace)
        if form not in entries:
            entries[form] = database_entry(form_of(load_program(task.program), trace))
        shash, definition, arguments = entries[form]
        failure = trial.outcome if isinstance(trial.outcome, Failure) else None
        told = {"args_info": arguments} | known | _told(failure)
        if intrinsic := intrinsic_of(trace):
            told["intrinsic"] = intrinsic
        yield Row(
            line=number,
            version=_VERSION,
            target=target,
            workload=shash,
            steps=steps_of(_completed(task, job, trial)),
            costs_s=() if isinstance(trial.outcome, Failure) else trial.outcome.latencies_s,
            error_no=0 if failure is None else ERROR_NO[failure.kind],
            all_cost_s=trial.build_s + trial.profile_s,
            timestamp=ended.get(trial.iteration),
            extra=json.dumps(told, separators=(",", ":"), sort_keys=True),
            definition=definition,
        )


def _completed(task: Task, job: Job, trial: Trial) -> str:
    """The trace as MetaSchedule writes it; what cannot be replayed stays as it is."""
    from tunefleet.compiler.code.replay import completed

    try:
        return completed(task.program, job.spec.target, trial.candidate.trace)
    except Exception as error:  # TVM raises errors of many kinds for a trace that does not fit
        raise_mistake(error)
        return trial.candidate.trace


def _told(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {}
    return {"failure": str(failure.kind), "failure_text": failure.text[:200], "run_secs": None}
