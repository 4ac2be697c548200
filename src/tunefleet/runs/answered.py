"""Modules that are there already, and jobs that one of them answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunefleet.core.agreement import judge
from tunefleet.core.home import Home
from tunefleet.core.job import Job
from tunefleet.core.known import KnownPrograms, module_id
from tunefleet.core.result import RunResult
from tunefleet.core.step import Imported, Preparation, StepKey, StepKind
from tunefleet.core.task import WeightedTask
from tunefleet.errors import InputError
from tunefleet.report.result import read_result
from tunefleet.runs.timeline import find_job
from tunefleet.stages.known import known_programs
from tunefleet.stages.result import difference_of
from tunefleet.store import Store

#: What is told where a module is there already.
FOUND = "the same programs were built and verified before: nothing is built again"


def answer_of(store: Store, home: Home, job: Job) -> RunResult | None:
    """The result of a job whose agreement is met by an artifact that is there: the one of the
    fastest verified programs of its network, by its measurement. None where none was measured to
    meet it, or where records of earlier jobs are not to be used."""
    spec = job.spec
    if spec.shared or not spec.settings.transfer:
        return None
    found = found_module(store, home, spec.preparation, None, measure=True)
    imported = store.work.step(StepKey(spec.preparation.id, StepKind.IMPORT))
    if found is None or imported is None or not isinstance(imported.result, Imported):
        return None
    difference = difference_of(found, imported.result.lost)
    judged = judge(spec.agreement, found.measured_shapes, difference, trials=0)
    if judged is None or not judged.is_met:
        return None
    return replace(
        found,
        job=job.job_id,
        budget=spec.budget,
        agreement=judged,
        stopped="the agreement was met before",
        trials=0,
        failures={},
        failure_texts={},
        curve=(),
        resumed=False,
    )


def tasks_of(store: Store, preparation: Preparation) -> Sequence[WeightedTask] | None:
    """Those of a network; None before its import."""
    imported = store.work.step(StepKey(preparation.id, StepKind.IMPORT))
    if imported is None or not isinstance(imported.result, Imported):
        return None
    return imported.result.tasks


def known_of(
    store: Store, preparation: Preparation, tasks: Sequence[WeightedTask], job: Job | None
) -> KnownPrograms:
    task_ids = [weighted.task.task_id for weighted in tasks]
    return known_programs(store, preparation, task_ids, "" if job is None else job.job_id)


def found_module(
    store: Store, home: Home, preparation: Preparation, job: Job | None, *, measure: bool
) -> RunResult | None:
    """The result of an artifact that has these very programs, and its figures where these are to be
    measured."""
    tasks = tasks_of(store, preparation)
    if tasks is None:
        return None
    known = known_of(store, preparation, tasks, job)
    for run_id in (module_id(preparation, known), *_job_of_all(store, preparation, known)):
        result = _published(home, run_id)
        if result is not None and not (measure and result.tuned_ms is None):
            return result
    return None


def _job_of_all(store: Store, preparation: Preparation, known: KnownPrograms) -> tuple[str, ...]:
    """The job of this network that all programs are winners of: its artifact is this module."""
    job_ids = {program.job_id for program in known.values()}
    if len(job_ids) != 1:
        return ()
    job = find_job(store, job_ids.pop())
    if job.spec.source is None or job.spec.preparation.id != preparation.id:
        return ()
    return (job.job_id,)


def _published(home: Home, run_id: str) -> RunResult | None:
    """The result of an artifact whose module is as it was verified; None where there is none."""
    from tunefleet.artifacts.artifact import check_files, read_artifact

    path = home.artifacts / run_id
    try:
        artifact = read_artifact(path)
        check_files(artifact, artifact.module)
        result = read_result(artifact.result, str(artifact.manifest))
    except InputError:
        return None
    return replace(
        result,
        artifact=str(path),
        report=str(artifact.report),
        # What its steps took, they took then.
        wall={},
        wall_s=None,
        known_share=result.share_of_tuned if result.known_share is None else result.known_share,
    )
