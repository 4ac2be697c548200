"""The update stage: the job's cost model learns from what was measured."""

from __future__ import annotations

from dataclasses import replace

from tunefleet.core.identity import Tier
from tunefleet.core.job import Job
from tunefleet.core.stage import StageKey, UpdateResult
from tunefleet.features import is_of_schema
from tunefleet.stages import work
from tunefleet.stages.place import JobTask, Workplace
from tunefleet.stages.records import Knowledge
from tunefleet.workers.pool import CallFailure


def update(
    place: Workplace, knowledge: Knowledge, lane: JobTask, key: StageKey
) -> tuple[UpdateResult, str]:
    """Fit the job's cost model on all its trials and what transfers, if enough is new."""
    settings = lane.job.spec.settings.search
    trained_on = place.store.records.model(key.job_id).trained_on
    count = place.store.records.trial_count(key.job_id) + sum(
        len(knowledge.known(replace(lane, task=task), Tier.EXACT))
        for task in knowledge.tasks(key.job_id)
    )
    # Fitting takes time in proportion to all trials: fit when a quarter as many are new.
    if count - trained_on < max(settings.min_new_trials, trained_on // 4):
        return UpdateResult(), ""
    samples = _samples(place, knowledge, lane.job)
    if not samples:  # all of them of another feature schema
        return UpdateResult(), ""
    features, labels, tasks = (list(column) for column in zip(*samples, strict=True))
    models = {
        task.task_id: model
        for task in knowledge.tasks(key.job_id)
        if (model := knowledge.pretrained(replace(lane, task=task))) is not None
    }
    outcome = place.machine.lead.call(
        work.run_update,
        next(iter(models.values()), None),
        settings.cost_model,
        features,
        labels,
        tasks,
        frozenset(models),
    )
    if isinstance(outcome, CallFailure):
        return UpdateResult(), f"the cost model stays as it was: {outcome.text}"
    return UpdateResult(outcome, count), ""


def _samples(place: Workplace, knowledge: Knowledge, job: Job) -> list[tuple[bytes, float, str]]:
    """(features, label, task) of all trials of a job and of the records it starts from."""
    samples: list[tuple[bytes, float, str]] = []
    for task in knowledge.tasks(job.job_id):
        by_candidate: dict[str, tuple[bytes, float | None]] = {
            r.candidate.candidate_id: (r.candidate.features, r.measurement.latency_s)
            for r in knowledge.known(JobTask(job, task), Tier.EXACT)
        }
        for trial in place.store.records.trials(job.job_id, task.task_id):
            by_candidate[trial.candidate.candidate_id] = (trial.candidate.features, trial.latency_s)
        best = min((s for _, s in by_candidate.values() if s is not None), default=None)
        for features, latency in by_candidate.values():
            if is_of_schema(features):
                label = best / latency if best and latency else 0.0
                samples.append((features, label, task.task_id))
    return samples
