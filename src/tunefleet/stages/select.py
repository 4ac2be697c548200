"""The select stage: which candidates of a task are tried next."""

from __future__ import annotations

from dataclasses import replace

from tunefleet.core.identity import Tier
from tunefleet.core.ids import seed_of
from tunefleet.core.stage import SelectResult, StageKey
from tunefleet.features.devices import Place
from tunefleet.search.selection import SelectRequest
from tunefleet.stages import similarity, work
from tunefleet.stages.place import JobTask, StageContext
from tunefleet.stages.records import Knowledge
from tunefleet.workers.pool import CallFailure

#: Programs of merely compatible devices that a task starts from.
_ELSEWHERE = 8
#: Similar tasks whose schedules it may take over, and trials that these must have: the best of
#: fewer is no better than what the model finds by itself (docs/benchmarks.md, search).
_SOURCES = 32
_SOURCE_TRIALS = 16


def select(
    place: StageContext, knowledge: Knowledge, lane: JobTask, key: StageKey, batch: int
) -> tuple[SelectResult, str]:
    """At most `batch` candidates of a task, and a remark on the stage."""
    settings = lane.job.spec.settings.search
    trials = place.store.records.trials(key.job_id, key.task_id)
    known = {
        t.candidate.candidate_id: (t.candidate.trace, t.latency_s)
        for t in trials
        if t.latency_s is not None
    }
    for record in knowledge.known(lane, Tier.EXACT):
        candidate = record.candidate
        known.setdefault(candidate.candidate_id, (candidate.trace, record.measurement.latency_s))
    starts = not known and key.iteration == 0
    ordered = sorted(known.items(), key=lambda item: item[1][1])
    request = SelectRequest(
        program=lane.task.program,
        target=place.target,
        settings=settings,
        batch=batch,
        seed=seed_of(settings.seed, key.task_id, key.iteration),
        known=tuple((i, trace, latency) for i, (trace, latency) in ordered),
        tried=frozenset(known)
        | {t.candidate.candidate_id for t in trials}
        | _in_flight(place, key),
        elsewhere=_elsewhere(knowledge, lane) if starts else (),
        transfer_sources=_transfer_sources(place, lane) if starts else (),
        operator=lane.task.operator,
        flops=lane.task.flops,
        device=Place.of_job(place.target, lane.job.spec.device).numbers(),
    )
    outcome = place.machine.lead.call(
        work.run_select,
        request,
        knowledge.pretrained(lane),
        settings.cost_model,
        place.store.records.model(key.job_id).model,
    )
    if isinstance(outcome, CallFailure):
        # A task that kills the search itself is complete: nothing can be selected for it.
        return SelectResult((), exhausted=True), f"given up: {outcome.text}"
    return outcome, ""


def _elsewhere(knowledge: Knowledge, lane: JobTask) -> tuple[str, ...]:
    """Traces of the task on compatible devices, best first."""
    return tuple(r.candidate.trace for r in knowledge.known(lane, Tier.COMPATIBLE, _ELSEWHERE))


def _transfer_sources(place: StageContext, lane: JobTask) -> tuple[str, ...]:
    """The fastest traces of the tasks most like it that have been tuned."""
    spec, task = lane.job.spec, lane.task
    if not spec.settings.transfer:
        return ()
    best_records = place.store.records.fastest_of_operator(
        task.operator,
        spec.device,
        spec.toolchain,
        measured=_SOURCE_TRIALS,
        tenant=spec.tenant,
    )
    others = [c for c in best_records if c.task_id != task.task_id]
    return tuple(c.trace for c in similarity.nearest(task, others, _SOURCES))


def _in_flight(place: StageContext, key: StageKey) -> set[str]:
    """Candidates of the round before: with look-ahead they may not be measured yet."""
    before = place.store.work.stage(replace(key, iteration=key.iteration - 1))
    if before is None or not isinstance(before.result, SelectResult):
        return set()
    return {c.candidate_id for c in before.result.candidates}
