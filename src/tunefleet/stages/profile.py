"""The profile stage: libraries are measured on the device. Nothing is built here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from tunefleet.artifacts.blobs import LostBlobError
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.stage import BuildResult, Profiled, ProfileResult, StageKey, StageKind
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement, Trial
from tunefleet.stages import work
from tunefleet.stages.failures import failure_of
from tunefleet.stages.place import JobTask, LostInputError, StageContext, Workplace
from tunefleet.stages.records import Knowledge, committed
from tunefleet.workers.pool import CallEnd, CallFailure

#: Candidates within this factor of the best may truly be faster; others are not worth the time.
_CLOSE = 1.12
#: Readings of the reference kernel before a drift is believed.
_REFERENCE_READINGS = 3
_FAILURES = {
    CallEnd.TIMEOUT: FailureKind.RUN_TIMEOUT,
    CallEnd.CRASH: FailureKind.RUN_CRASH,
    CallEnd.MEMORY: FailureKind.RUN_MEMORY,
    CallEnd.ERROR: FailureKind.RUN_ERROR,
}


def profile(
    place: StageContext, knowledge: Knowledge, lane: JobTask, key: StageKey
) -> tuple[ProfileResult, str]:
    """Measure a batch; measure it again when the reference kernel says it was disturbed."""
    built = _libraries(place, key)
    if not built:
        return ProfileResult(()), ""
    settings = lane.job.spec.settings.measure
    best = knowledge.best_latency(lane)
    chosen: tuple[float, list[Measurement | CallFailure | Failure]] | None = None
    attempts = 0
    shared = lane.job.spec.shared  # then it is disturbed on purpose, however often it is measured
    for _ in range(1 if shared else 1 + settings.max_again):
        attempts += 1
        before = reference_latency(place)
        outcomes = _measure(place, knowledge, built, settings, best, key)
        drift = drift_since(partial(reference_latency, place), before, settings.max_drift)
        if chosen is None or abs(drift) < abs(chosen[0]):
            chosen = (drift, outcomes)
        if abs(drift) <= settings.max_drift:
            break
    assert chosen is not None
    drift, outcomes = chosen
    measured: list[Profiled] = []
    failed: list[tuple[str, Failure]] = []
    for candidate, outcome in zip(built, outcomes, strict=True):
        if isinstance(outcome, Measurement):
            value = Measurement(outcome.latencies_s, drift, shared)
            measured.append(Profiled(candidate.candidate_id, value, sum(outcome.latencies_s)))
        else:
            failed.append((candidate.candidate_id, failure_of(outcome, _FAILURES)))
    note = f"reference drift {drift:+.1%}"
    if attempts > 1:
        note += f", measured {attempts} times"
    return ProfileResult(tuple(measured), tuple(failed)), note


def _measure(
    place: StageContext,
    knowledge: Knowledge,
    built: Sequence[Built],
    settings: MeasureSettings,
    best: float | None,
    key: StageKey,
) -> list[Measurement | CallFailure | Failure]:
    """One after the other: what is known of the best cuts the hopeless ones short."""
    weights = knowledge.weights(key.job_id, settings.timeout_s)[key.task_id]
    outcomes: list[Measurement | CallFailure | Failure] = []
    device = place.measuring(settings)
    for candidate in built:
        outcome = device.call(
            work.profile_candidate,
            candidate,
            settings,
            best,
            weights,
            timeout_s=settings.timeout_s,
        )
        if isinstance(outcome, Measurement):
            best = min(outcome.latency_s, best or outcome.latency_s)
        outcomes.append(outcome)
        place.progress(key, len(outcomes), len(built))
    return outcomes


def drift_since(read: Callable[[], float | None], before: float | None, allowed: float) -> float:
    """Relative change of the reference kernel. One reading is noisy by itself: a change is
    believed only when a few readings in a row show it."""
    drift = 0.0
    for _ in range(_REFERENCE_READINGS):
        after = read()
        if not before or not after:
            return 0.0
        drift = after / before - 1
        if abs(drift) <= allowed:
            break
    return drift


def reference_latency(place: StageContext) -> float | None:
    outcome = place.device.call(
        work.measure_reference, place.target, str(place.machine.scratch), timeout_s=60
    )
    return None if isinstance(outcome, CallFailure) else outcome


def _libraries(place: StageContext, key: StageKey) -> list[Built]:
    """What the round built, where it lies here."""
    objects = place.objects(key.job_id)
    built = committed(place.store, key, StageKind.BUILD, BuildResult).built
    try:
        return [replace(each, path=str(objects.path(each.path))) for each in built]
    except LostBlobError as error:
        raise LostInputError(StageKind.BUILD, error.what) from error


def closest(trials: Iterable[Trial], settings: MeasureSettings) -> list[Trial]:
    """The fastest trials of a task, the best one first: those that are close to it, as many as are
    to be compared at last."""
    measured = sorted((t for t in trials if t.latency_s is not None), key=latency_of)
    close = [t for t in measured if latency_of(t) <= latency_of(measured[0]) * _CLOSE]
    return close[: settings.finalists]


def latency_of(trial: Trial) -> float:
    """In seconds; infinite for a trial that failed."""
    return trial.latency_s if trial.latency_s is not None else float("inf")


def discard(place: StageContext, lane: JobTask, key: StageKey) -> None:
    """Of what a round built is kept, once it is measured, what may win; of the rounds before as
    well, in place of what could."""
    trials = place.store.records.trials(key.job_id, key.task_id)
    settings = lane.job.spec.settings.measure
    kept = {trial.candidate.candidate_id for trial in closest(trials, settings)}
    before = closest((t for t in trials if t.iteration < key.iteration), settings)
    rounds = {key.iteration, *(trial.iteration for trial in before)}
    objects = place.objects(key.job_id)
    for built in built_in(place, key, rounds):
        if built.candidate_id not in kept:
            for name in filter(None, (built.path, built.code)):
                objects.remove(name)


def built_in(place: Workplace, key: StageKey, rounds: Iterable[int]) -> Iterator[Built]:
    """What some rounds of a task built. It may be discarded since."""
    for iteration in rounds:
        run = place.store.work.stage(replace(key, iteration=iteration, kind=StageKind.BUILD))
        if run is not None and isinstance(run.result, BuildResult):
            yield from run.result.built
