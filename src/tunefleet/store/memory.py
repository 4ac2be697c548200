"""A store that forgets: the public fake for tests, simulations and one-off sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any

from tunefleet.core.coordination import Lease
from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.core.stage import (
    BuildResult,
    SelectResult,
    StageKey,
    StageKind,
    StageRun,
    StageSpan,
    UpdateResult,
)
from tunefleet.core.step import StepKey, StepRun
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Candidate, Failure, FailureKind, Measurement, Trial
from tunefleet.errors import InternalError
from tunefleet.store import rules
from tunefleet.store._base import BestRecord, Record
from tunefleet.store.memory_coordination import MemoryCoordination
from tunefleet.store.memory_events import MemoryEvents


@dataclass
class _Entry:
    """All that is known of one job; dictionaries keep the order of commit."""

    job: Job
    tasks: list[WeightedTask] = field(default_factory=list)
    runs: dict[StageKey, StageRun] = field(default_factory=dict)
    trials: dict[tuple[str, str], Trial] = field(default_factory=dict)
    winners: dict[str, tuple[Trial | None, Any]] = field(default_factory=dict)
    summary: Any = None

    @property
    def measured_by(self) -> tuple[DeviceIdentity, ToolchainIdentity]:
        return self.job.spec.device, self.job.spec.toolchain

    def is_measured_by(self, device: DeviceIdentity, toolchain: ToolchainIdentity) -> bool:
        spec = self.job.spec
        return (spec.device.exact, spec.toolchain.exact) == (device.exact, toolchain.exact)

    def is_of(self, tier: Tier, device: DeviceIdentity, toolchain: ToolchainIdentity) -> bool:
        spec = self.job.spec
        exact = self.is_measured_by(device, toolchain)
        compatible = (
            spec.device.compatible == device.compatible
            and spec.toolchain.compatible == toolchain.compatible
        )
        return exact if tier is Tier.EXACT else compatible and not exact


class MemoryStore:
    """A `Store` in this process. One lock makes each verb one transaction; nothing survives."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._entries: dict[str, _Entry] = {}
        self._tasks: dict[str, Task] = {}
        self._trials: list[tuple[_Entry, str, Trial]] = []
        self._spans: list[StageSpan] = []
        self._steps: dict[StepKey, StepRun] = {}
        self._closed = False
        self.coordination = MemoryCoordination(self._verb, self._entry)
        self.events = MemoryEvents(self._entries.__contains__)

    def open_job(self, spec: JobSpec, *, job_id: str, now: float) -> Job:
        with self._verb():
            for entry in reversed(self._entries.values()):
                same = entry.job.spec.fingerprint == spec.fingerprint
                if same and entry.job.state is JobState.RUNNING:
                    entry.job = replace(entry.job, spec=spec)
                    return entry.job
            if job_id in self._entries:
                raise rules.taken(job_id)
            job = Job(job_id, spec, JobState.RUNNING, now)
            self._entries[job_id] = _Entry(job)
            return job

    def jobs(self) -> list[Job]:
        with self._verb():
            return [entry.job for entry in reversed(self._entries.values())]

    def put_tasks(self, job_id: str, tasks: Sequence[WeightedTask]) -> None:
        rules.check_distinct(tasks)
        with self._verb():
            entry = self._entry(job_id)
            entry.tasks = []
            for weighted in tasks:
                shared = self._tasks.setdefault(weighted.task.task_id, weighted.task)
                if not shared.precision:
                    shared = replace(shared, precision=weighted.task.precision)
                    self._tasks[shared.task_id] = shared
                task = replace(shared, name=weighted.task.name)
                entry.tasks.append(WeightedTask(task, weighted.weight))

    def tasks(self, job_id: str) -> list[WeightedTask]:
        with self._verb():
            return [self._shared(weighted) for weighted in self._entry(job_id).tasks]

    def commit(
        self,
        run: StageRun,
        *,
        elapsed_s: float = 0.0,
        again: bool = False,
        leases: Sequence[Lease] = (),
    ) -> bool:
        rules.check_result(run)
        with self._verb():
            for lease in leases:
                self.coordination.check_current(lease)
            entry = self._entry(run.key.job_id, run.key.task_id)
            if run.key in entry.runs and not again:
                return False
            self._spans = [span for span in self._spans if span.key != run.key]
            for trial in _new_trials(entry, run):
                name = (run.key.task_id, trial.candidate.candidate_id)
                if name not in entry.trials:
                    entry.trials[name] = trial
                    self._trials.append((entry, run.key.task_id, trial))
            entry.runs[run.key] = run
            self._spans.append(run.span)
            entry.job = replace(entry.job, elapsed_s=max(entry.job.elapsed_s, elapsed_s))
            return True

    def stage(self, key: StageKey) -> StageRun | None:
        with self._verb():
            return self._entry(key.job_id, key.task_id).runs.get(key)

    def stages(self, job_id: str) -> list[StageRun]:
        with self._verb():
            return [_without_bulk(run) for run in self._entry(job_id).runs.values()]

    def commit_step(
        self, run: StepRun, *, again: bool = False, leases: Sequence[Lease] = ()
    ) -> bool:
        rules.check_step(run)
        with self._verb():
            for lease in leases:
                self.coordination.check_current(lease)
            if run.key in self._steps and not again:
                return False
            self._steps.pop(run.key, None)
            self._steps[run.key] = run
            return True

    def step(self, key: StepKey) -> StepRun | None:
        with self._verb():
            return self._steps.get(key)

    def steps(self, owner: str) -> list[StepRun]:
        with self._verb():
            return [run for key, run in self._steps.items() if key.owner == owner]

    def forget_steps(self, owner: str) -> None:
        with self._verb():
            self._steps = {k: run for k, run in self._steps.items() if k.owner != owner}

    def stages_between(self, start: float, end: float) -> list[StageSpan]:
        rules.check_window(start, end)
        with self._verb():
            touching = [s for s in self._spans if s.started_at <= end and s.ended_at >= start]
            return sorted(touching, key=lambda span: span.started_at)

    def trials(self, job_id: str, task_id: str | None = None) -> list[Trial]:
        with self._verb():
            trials = self._entry(job_id, task_id).trials
            return [t for (of, _), t in trials.items() if task_id in (None, of)]

    def trial_count(self, job_id: str) -> int:
        with self._verb():
            return len(self._entry(job_id).trials)

    def model(self, job_id: str) -> UpdateResult:
        with self._verb():
            for run in reversed(self._entry(job_id).runs.values()):
                if isinstance(run.result, UpdateResult) and run.result.model:
                    return run.result
            return UpdateResult()

    def records(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tier: Tier,
        limit: int,
    ) -> list[Record]:
        rules.check_limit(limit)
        with self._verb():
            if task_id not in self._tasks:
                raise rules.unknown_task(task_id)
            asked = {
                job_id: self._wrong(task_id, device, toolchain)
                | self._wrong(task_id, *entry.measured_by)
                for job_id, entry in self._entries.items()
                if entry.is_of(tier, device, toolchain)
            }
            measured = [
                _record(entry, task_id, trial)
                for entry, of, trial in self._trials
                if of == task_id
                and trial.latency_s is not None
                and entry.job.job_id in asked
                and trial.candidate.candidate_id not in asked[entry.job.job_id]
            ]
        fastest: dict[str, Record] = {}
        for record in sorted(measured, key=lambda r: r.measurement.latency_s):
            fastest.setdefault(record.candidate.candidate_id, record)
        return list(fastest.values())[:limit]

    def best_records(
        self,
        operator: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        measured: int = 1,
    ) -> list[BestRecord]:
        fastest: dict[str, BestRecord] = {}
        count: Counter[str] = Counter()
        with self._verb():
            for entry, task_id, trial in self._trials:
                task = self._tasks[task_id]
                here = any(entry.is_of(tier, device, toolchain) for tier in Tier)
                if task.operator != operator or trial.latency_s is None or not here:
                    continue
                count[task_id] += 1
                trace, latency_s = trial.candidate.trace, trial.latency_s
                known = fastest.get(task_id)
                if known is None or latency_s < known.latency_s:
                    fastest[task_id] = BestRecord(
                        task_id, task.shapes, task.flops, trace, latency_s
                    )
        return [fastest[task_id] for task_id in sorted(fastest) if count[task_id] >= measured]

    def select_winner(
        self,
        job_id: str,
        task_id: str,
        winner: Trial | None,
        checks: Any,
        rejected: Sequence[tuple[str, Failure]] = (),
    ) -> None:
        rules.check_winner(winner)
        checks = rules.json_value(checks, "checks")
        with self._verb():
            own = self._entry(job_id, task_id)
            own.winners[task_id] = (winner, checks)
            for candidate_id, failure in rejected:
                for entry in self._entries.values():
                    trial = entry.trials.get((task_id, candidate_id))
                    if trial is not None and entry.is_measured_by(*own.measured_by):
                        entry.trials[task_id, candidate_id] = replace(trial, outcome=failure)
            self._trials = [
                (entry, of, entry.trials[of, trial.candidate.candidate_id])
                for entry, of, trial in self._trials
            ]

    def winners(self, job_id: str) -> dict[str, tuple[Trial | None, Any]]:
        with self._verb():
            return deepcopy(self._entry(job_id).winners)

    def best(
        self, task_id: str, device: DeviceIdentity, toolchain: ToolchainIdentity
    ) -> Record | None:
        """The entry of the best-only table: the fastest winner any job delivered here."""
        with self._verb():
            decided = [
                _record(entry, task_id, winner)
                for entry in self._entries.values()
                if entry.is_measured_by(device, toolchain)
                if (winner := entry.winners.get(task_id, (None,))[0]) is not None
            ]
            return min(decided, key=lambda r: r.measurement.latency_s, default=None)

    def finish(self, job_id: str, state: JobState, summary: Any) -> None:
        rules.check_closing(state)
        summary = rules.json_value(summary, "summary")
        with self._verb():
            entry = self._entry(job_id)
            entry.job = replace(entry.job, state=state)
            entry.summary = summary

    def summary(self, job_id: str) -> Any:
        with self._verb():
            return deepcopy(self._entry(job_id).summary)

    def remove_job(self, job_id: str) -> None:
        with self._verb():
            entry = self._entry(job_id)
            del self._entries[job_id]
            self.coordination.forget(job_id)
            self._trials = [trial for trial in self._trials if trial[0] is not entry]
            self._spans = [span for span in self._spans if span.key.job_id != job_id]
            self.forget_steps(job_id)
            self.events.remove(job_id)

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def _verb(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise InternalError("the store is closed")
            yield

    def _entry(self, job_id: str, task_id: str | None = None) -> _Entry:
        if job_id not in self._entries:
            raise rules.unknown_job(job_id)
        entry = self._entries[job_id]
        if task_id is not None and all(t.task.task_id != task_id for t in entry.tasks):
            raise rules.unknown_task(task_id, job_id)
        return entry

    def _shared(self, weighted: WeightedTask) -> WeightedTask:
        """With what another job has told of the task since."""
        precision = self._tasks[weighted.task.task_id].precision
        return replace(weighted, task=replace(weighted.task, precision=precision))

    def _wrong(
        self, task_id: str, device: DeviceIdentity, toolchain: ToolchainIdentity
    ) -> set[str]:
        return {
            trial.candidate.candidate_id
            for entry, of, trial in self._trials
            if of == task_id
            and entry.is_measured_by(device, toolchain)
            and isinstance(trial.outcome, Failure)
            and trial.outcome.kind is FailureKind.WRONG_ANSWER
        }


def _new_trials(entry: _Entry, run: StageRun) -> list[Trial]:
    """What a stage makes trials of; raises InternalError for a candidate nobody selected."""
    selected = _selected(entry, run.key)
    built_s = _build_seconds(entry, run)
    new = []
    for candidate_id, (outcome, profile_s) in rules.outcomes(run.result).items():
        if candidate_id not in selected:
            raise rules.not_selected(run, candidate_id)
        build_s = built_s.get(candidate_id, 0.0)
        candidate = selected[candidate_id]
        new.append(Trial(candidate, run.key.iteration, outcome, build_s, profile_s))
    return new


def _selected(entry: _Entry, key: StageKey) -> dict[str, Candidate]:
    run = entry.runs.get(replace(key, kind=StageKind.SELECT))
    if run is None or not isinstance(run.result, SelectResult):
        return {}
    return {c.candidate_id: c for c in reversed(run.result.candidates)}


def _build_seconds(entry: _Entry, run: StageRun) -> dict[str, float]:
    build = entry.runs.get(replace(run.key, kind=StageKind.BUILD))
    if build is None or not isinstance(build.result, BuildResult):
        return {}
    return {built.candidate_id: built.build_s for built in build.result.built}


def _without_bulk(run: StageRun) -> StageRun:
    if isinstance(run.result, UpdateResult):
        return replace(run, result=replace(run.result, model=b""))
    if isinstance(run.result, SelectResult):
        lean = tuple(replace(c, features=b"") for c in run.result.candidates)
        return replace(run, result=replace(run.result, candidates=lean))
    return run


def _record(entry: _Entry, task_id: str, trial: Trial) -> Record:
    assert isinstance(trial.outcome, Measurement)
    spec, job_id = entry.job.spec, entry.job.job_id
    return Record(task_id, job_id, trial.candidate, trial.outcome, spec.device, spec.toolchain)
