"""The build stage: candidates become libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tunefleet.artifacts.blobs import Blobs
from tunefleet.core.stage import BuildResult, SelectResult, StageKey, StageKind
from tunefleet.core.trial import Built, Failure, FailureKind
from tunefleet.stages import work
from tunefleet.stages.failures import failure_of
from tunefleet.stages.place import JobTask, StageContext
from tunefleet.stages.records import committed
from tunefleet.workers.pool import CallEnd

_FAILURES = {
    CallEnd.TIMEOUT: FailureKind.BUILD_TIMEOUT,
    CallEnd.CRASH: FailureKind.BUILD_CRASH,
    CallEnd.MEMORY: FailureKind.BUILD_MEMORY,
    CallEnd.ERROR: FailureKind.BUILD_ERROR,
}


def build(place: StageContext, lane: JobTask, key: StageKey) -> BuildResult:
    """Libraries of the candidates that the round selected, kept by the names of their content."""
    selected = committed(place.store, key, StageKind.SELECT, SelectResult)
    settings = lane.job.spec.settings.build
    objects = place.objects(key.job_id)
    built: list[Built] = []
    failed: list[tuple[str, Failure]] = []
    with objects.draft() as draft:
        arguments = [
            (lane.task.program, place.target, c.candidate_id, c.trace, draft)
            for c in selected.candidates
        ]
        outcomes = place.machine.builders(settings).map(
            work.build_candidate,
            arguments,
            settings.timeout_s,
            lambda done: place.progress(key, done, len(arguments)),
        )
        for candidate, outcome in zip(selected.candidates, outcomes, strict=True):
            if isinstance(outcome, Built):
                built.append(kept(outcome, objects))
            else:
                failed.append((candidate.candidate_id, failure_of(outcome, _FAILURES)))
    return BuildResult(tuple(built), tuple(failed))


def kept(built: Built, objects: Blobs) -> Built:
    """What was built, its files by the names of their content."""
    path, code = (objects.put(Path(each)) if each else "" for each in (built.path, built.code))
    return replace(built, path=path, code=code)
