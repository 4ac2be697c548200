"""Runs one stage: inputs from the store by its key, work in the pools, a result to commit.

Any stage of any job can be run by any StageRunner whose machine has the target; between two
stages nothing is remembered here but what the store can give back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from tunefleet.core.identity import Tier
from tunefleet.core.ids import seed_of
from tunefleet.core.job import Job
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.stage import (
    BuildResult,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageResult,
    StageRun,
    UpdateResult,
)
from tunefleet.core.task import Task, TaskWeights
from tunefleet.core.trial import Built, Failure, FailureKind, Measurement
from tunefleet.costmodel.registry import Registry
from tunefleet.errors import InternalError
from tunefleet.features import is_of_schema
from tunefleet.features.devices import Place
from tunefleet.search.guide import Pretrained
from tunefleet.search.selection import SelectRequest
from tunefleet.stages import similarity, work
from tunefleet.stages.weights import weights_of
from tunefleet.store import Record, Store
from tunefleet.workers.machine import Machine
from tunefleet.workers.pool import CallEnd, CallFailure

#: Records of earlier jobs that a task starts from, and that the first cost model learns from.
_KNOWN_RECORDS = 64
#: Readings of the reference kernel before a drift is believed.
_REFERENCE_READINGS = 3
#: Programs of merely compatible devices that a task starts from.
_ELSEWHERE = 8
#: Similar tasks whose schedules it may take over, and trials that these must have: the best of
#: fewer is no better than what the model finds by itself (docs/benchmarks.md, search).
_DONORS = 32
_DONOR_TRIALS = 16

#: Seconds for which records of other jobs are taken as they were.
_KNOWN_FOR_S = 30.0

_BUILD_FAILURES = {
    CallEnd.TIMEOUT: FailureKind.BUILD_TIMEOUT,
    CallEnd.CRASH: FailureKind.BUILD_CRASH,
    CallEnd.MEMORY: FailureKind.BUILD_MEMORY,
    CallEnd.ERROR: FailureKind.BUILD_ERROR,
}
_RUN_FAILURES = {
    CallEnd.TIMEOUT: FailureKind.RUN_TIMEOUT,
    CallEnd.CRASH: FailureKind.RUN_CRASH,
    CallEnd.MEMORY: FailureKind.RUN_MEMORY,
    CallEnd.ERROR: FailureKind.RUN_ERROR,
}

Progress = Callable[[StageKey, int, int], None]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Lane:
    """A task within its job, as a stage needs it."""

    job: Job
    task: Task


class StageRunner:
    def __init__(
        self,
        store: Store,
        machine: Machine,
        models: Registry,
        progress: Progress = lambda key, done, total: None,
    ) -> None:
        self._store = store
        self._machine = machine
        self._models = models
        self._progress = progress
        self._pretrained = lru_cache(maxsize=4)(self._loaded)
        self._tasks = lru_cache(maxsize=16)(self._tasks_of)
        self._weights = lru_cache(maxsize=16)(self._weights_of)
        self._known_records: dict[tuple[str, str, Tier, int], tuple[float, list[Record]]] = {}

    def run(self, lane: Lane, key: StageKey, batch: int) -> StageRun:
        """Run a stage to its result; the caller commits it. `batch` is used by select only."""
        started_at, clock = time.time(), time.perf_counter()
        note = ""
        result: StageResult
        if key.kind is StageKind.SELECT:
            result, note = self._select(lane, key, batch)
        elif key.kind is StageKind.BUILD:
            result = self._build(lane, key)
        elif key.kind is StageKind.PROFILE:
            result, note = self._profile(lane, key)
        else:
            result, note = self._update(lane, key)
        return StageRun(key, result, started_at, time.perf_counter() - clock, note)

    def _select(self, lane: Lane, key: StageKey, batch: int) -> tuple[SelectResult, str]:
        settings = lane.job.spec.settings.search
        trials = self._store.trials(key.job_id, key.task_id)
        known = {
            t.candidate.candidate_id: (t.candidate.trace, t.latency_s)
            for t in trials
            if t.latency_s is not None
        }
        for record in self._known(lane, Tier.EXACT):
            candidate = record.candidate
            known.setdefault(
                candidate.candidate_id, (candidate.trace, record.measurement.latency_s)
            )
        starts = not known and key.iteration == 0
        ordered = sorted(known.items(), key=lambda item: item[1][1])
        request = SelectRequest(
            program=lane.task.program,
            target=self._machine.target,
            settings=settings,
            batch=batch,
            seed=seed_of(settings.seed, key.task_id, key.iteration),
            known=tuple((i, trace, latency) for i, (trace, latency) in ordered),
            tried=frozenset(known)
            | {t.candidate.candidate_id for t in trials}
            | self._in_flight(key),
            elsewhere=self._elsewhere(lane) if starts else (),
            donors=self._donors(lane) if starts else (),
            operator=lane.task.operator,
            flops=lane.task.flops,
            device=Place.of_job(self._machine.target, lane.job.spec.device).numbers(),
        )
        outcome = self._machine.lead.call(
            work.run_select,
            request,
            self._pretrained(settings.pretrained),
            settings.cost_model,
            self._store.model(key.job_id).model,
        )
        if isinstance(outcome, CallFailure):
            # A task that kills the search itself is complete: nothing can be selected for it.
            return SelectResult((), exhausted=True), f"given up: {outcome.text}"
        return outcome, ""

    def _elsewhere(self, lane: Lane) -> tuple[str, ...]:
        """Traces of the task on compatible devices, best first."""
        return tuple(r.candidate.trace for r in self._known(lane, Tier.COMPATIBLE, _ELSEWHERE))

    def _donors(self, lane: Lane) -> tuple[str, ...]:
        """The fastest traces of the tasks most like it that have been tuned."""
        spec, task = lane.job.spec, lane.task
        if not spec.settings.transfer:
            return ()
        champions = self._store.champions(
            task.operator, spec.device, spec.toolchain, measured=_DONOR_TRIALS
        )
        others = [c for c in champions if c.task_id != task.task_id]
        return tuple(c.trace for c in similarity.nearest(task, others, _DONORS))

    def _known(self, lane: Lane, tier: Tier, limit: int = _KNOWN_RECORDS) -> list[Record]:
        """`known_records`, looked up anew when they are older than `_KNOWN_FOR_S`: an update asks
        for those of all tasks, which would take as long as its fit."""
        key = (lane.job.job_id, lane.task.task_id, tier, limit)
        now = time.monotonic()
        found = self._known_records.get(key)
        if found is None or now - found[0] > _KNOWN_FOR_S:
            found = (now, known_records(self._store, lane, tier, limit))
            self._known_records[key] = found
        return found[1]

    def _tasks_of(self, job_id: str) -> tuple[Task, ...]:
        return tuple(weighted.task for weighted in self._store.tasks(job_id))

    def _weights_of(self, job_id: str, timeout_s: float) -> dict[str, TaskWeights]:
        # In the device's worker, which is idle: the host's may be building another task's batch.
        return weights_of(self._store.tasks(job_id), self._machine.device, timeout_s)

    def _loaded(self, model_id: str) -> Pretrained | None:
        if not model_id:
            return None
        entry = self._models.get(model_id)
        return Pretrained(entry.card.kind, str(entry.member(0)))

    def _in_flight(self, key: StageKey) -> set[str]:
        """Candidates of the round before: with look-ahead they may not be measured yet."""
        before = self._store.stage(replace(key, iteration=key.iteration - 1))
        if before is None or not isinstance(before.result, SelectResult):
            return set()
        return {c.candidate_id for c in before.result.candidates}

    def _build(self, lane: Lane, key: StageKey) -> BuildResult:
        selected = self._result(key, StageKind.SELECT, SelectResult)
        settings = lane.job.spec.settings.build
        scratch = str(self._machine.scratch)
        arguments = [
            (lane.task.program, self._machine.target, c.candidate_id, c.trace, scratch)
            for c in selected.candidates
        ]
        outcomes = self._machine.host.map(
            work.build_candidate,
            arguments,
            settings.timeout_s,
            lambda done: self._progress(key, done, len(arguments)),
        )
        built: list[Built] = []
        failed: list[tuple[str, Failure]] = []
        for candidate, outcome in zip(selected.candidates, outcomes, strict=True):
            if isinstance(outcome, Built):
                built.append(outcome)
            else:
                failed.append((candidate.candidate_id, _failure(outcome, _BUILD_FAILURES)))
        return BuildResult(tuple(built), tuple(failed))

    def _profile(self, lane: Lane, key: StageKey) -> tuple[ProfileResult, str]:
        """Measure a batch; measure it again when the reference kernel says it was disturbed."""
        built = self._result(key, StageKind.BUILD, BuildResult).built
        if not all(Path(b.path).exists() for b in built):
            # Built by a process that was killed since: build again, it costs time only.
            built = self._build(lane, key).built
        if not built:
            return ProfileResult(()), ""
        settings = lane.job.spec.settings.measure
        best = self.best_latency(lane)
        chosen: tuple[float, list[Measurement | CallFailure | Failure]] | None = None
        attempts = 0
        for _ in range(1 + settings.max_again):
            attempts += 1
            before = self._reference()
            outcomes = self._measure(built, settings, best, key)
            drift = self._drift_since(before, settings.max_drift)
            if chosen is None or abs(drift) < abs(chosen[0]):
                chosen = (drift, outcomes)
            if abs(drift) <= settings.max_drift:
                break
        assert chosen is not None
        drift, outcomes = chosen
        measured: list[tuple[str, Measurement, float]] = []
        failed: list[tuple[str, Failure]] = []
        for candidate, outcome in zip(built, outcomes, strict=True):
            if isinstance(outcome, Measurement):
                value = Measurement(outcome.latencies_s, drift)
                measured.append((candidate.candidate_id, value, sum(outcome.latencies_s)))
            else:
                failed.append((candidate.candidate_id, _failure(outcome, _RUN_FAILURES)))
        note = f"reference drift {drift:+.1%}"
        if attempts > 1:
            note += f", measured {attempts} times"
        return ProfileResult(tuple(measured), tuple(failed)), note

    def _measure(
        self, built: Sequence[Built], settings: MeasureSettings, best: float | None, key: StageKey
    ) -> list[Measurement | CallFailure | Failure]:
        """One after the other: what is known of the best cuts the hopeless ones short."""
        weights = self._weights(key.job_id, settings.timeout_s)[key.task_id]
        outcomes: list[Measurement | CallFailure | Failure] = []
        for candidate in built:
            outcome = self._machine.device.call(
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
            self._progress(key, len(outcomes), len(built))
        return outcomes

    def _drift_since(self, before: float | None, allowed: float) -> float:
        """Relative change of the reference kernel. One reading is noisy by itself: a change is
        believed only when a few readings in a row show it."""
        drift = 0.0
        for _ in range(_REFERENCE_READINGS):
            after = self._reference()
            if not before or not after:
                return 0.0
            drift = after / before - 1
            if abs(drift) <= allowed:
                break
        return drift

    def _reference(self) -> float | None:
        outcome = self._machine.device.call(
            work.measure_reference, self._machine.target, str(self._machine.scratch), timeout_s=60
        )
        return None if isinstance(outcome, CallFailure) else outcome

    def best_latency(self, lane: Lane) -> float | None:
        """The best known latency of a task in this job or, exactly, in earlier ones."""
        found = [t.latency_s for t in self._store.trials(lane.job.job_id, lane.task.task_id)]
        found += [r.measurement.latency_s for r in self._known(lane, Tier.EXACT, 1)]
        return min((latency for latency in found if latency is not None), default=None)

    def _update(self, lane: Lane, key: StageKey) -> tuple[UpdateResult, str]:
        """Fit the job's cost model on all its trials and what transfers, if enough is new."""
        settings = lane.job.spec.settings.search
        trained_on = self._store.model(key.job_id).trained_on
        count = self._store.trial_count(key.job_id) + sum(
            len(self._known(replace(lane, task=task), Tier.EXACT))
            for task in self._tasks(key.job_id)
        )
        # Fitting takes time in proportion to all trials: fit when a quarter as many are new.
        if count - trained_on < max(settings.min_new_trials, trained_on // 4):
            return UpdateResult(), ""
        samples = self._samples(lane.job)
        if not samples:  # all of them of another feature schema
            return UpdateResult(), ""
        features, labels, tasks = (list(column) for column in zip(*samples, strict=True))
        outcome = self._machine.lead.call(
            work.run_update,
            self._pretrained(settings.pretrained),
            settings.cost_model,
            features,
            labels,
            tasks,
        )
        if isinstance(outcome, CallFailure):
            return UpdateResult(), f"the cost model stays as it was: {outcome.text}"
        return UpdateResult(outcome, count), ""

    def _samples(self, job: Job) -> list[tuple[bytes, float, str]]:
        """(features, label, task) of all trials of a job and of the records it starts from."""
        samples: list[tuple[bytes, float, str]] = []
        for task in self._tasks(job.job_id):
            found: dict[str, tuple[bytes, float | None]] = {
                r.candidate.candidate_id: (r.candidate.features, r.measurement.latency_s)
                for r in self._known(Lane(job, task), Tier.EXACT)
            }
            for trial in self._store.trials(job.job_id, task.task_id):
                found[trial.candidate.candidate_id] = (trial.candidate.features, trial.latency_s)
            best = min((s for _, s in found.values() if s is not None), default=None)
            for features, latency in found.values():
                if is_of_schema(features):
                    label = best / latency if best and latency else 0.0
                    samples.append((features, label, task.task_id))
        return samples

    def _result(self, key: StageKey, kind: StageKind, expected: type[R]) -> R:
        source = StageKey(key.job_id, key.task_id, key.iteration, kind)
        run = self._store.stage(source)
        if run is None or not isinstance(run.result, expected):
            raise InternalError(f"{key} was started before {source} was committed")
        return run.result


def known_records(
    store: Store, lane: Lane, tier: Tier, limit: int = _KNOWN_RECORDS
) -> list[Record]:
    """What other jobs measured of this task; nothing where transfer is switched off."""
    spec = lane.job.spec
    if not spec.settings.transfer:
        return []
    found = store.records(lane.task.task_id, spec.device, spec.toolchain, tier=tier, limit=limit)
    return [record for record in found if record.job_id != lane.job.job_id]


def _failure(outcome: object, kinds: dict[CallEnd, FailureKind]) -> Failure:
    if isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome, CallFailure):
        return Failure(kinds[outcome.end], outcome.text)
    raise InternalError(f"a worker returned {type(outcome).__name__}")
