"""What was done for jobs, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tunefleet.core.coordination import Lease
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
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Candidate, Trial
from tunefleet.store import rules
from tunefleet.store.memory_coordination import MemoryCoordination
from tunefleet.store.memory_state import JobEntry, MemoryState


class MemoryWork:
    """`StoredWork` in this process."""

    def __init__(self, state: MemoryState, coordination: MemoryCoordination) -> None:
        self._state = state
        self._coordination = coordination

    def put_tasks(self, job_id: str, tasks: Sequence[WeightedTask]) -> None:
        rules.check_distinct(tasks)
        with self._state.verb():
            entry = self._state.entry(job_id)
            entry.tasks = []
            for weighted in tasks:
                shared = self._state.tasks.setdefault(weighted.task.task_id, weighted.task)
                if not shared.precision:
                    shared = replace(shared, precision=weighted.task.precision)
                    self._state.tasks[shared.task_id] = shared
                task = replace(shared, name=weighted.task.name)
                entry.tasks.append(WeightedTask(task, weighted.weight))

    def tasks(self, job_id: str) -> list[WeightedTask]:
        with self._state.verb():
            return [self._shared(weighted) for weighted in self._state.entry(job_id).tasks]

    def commit(
        self,
        run: StageRun,
        *,
        elapsed_s: float = 0.0,
        again: bool = False,
        leases: Sequence[Lease] = (),
    ) -> bool:
        rules.check_result(run)
        with self._state.verb():
            for lease in leases:
                self._coordination.check_current(lease)
            entry = self._state.entry(run.key.job_id, run.key.task_id)
            if run.key in entry.runs and not again:
                return False
            self._state.spans = [span for span in self._state.spans if span.key != run.key]
            for trial in _new_trials(entry, run):
                name = (run.key.task_id, trial.candidate.candidate_id)
                if name not in entry.trials:
                    entry.trials[name] = trial
                    self._state.trials.append((entry, run.key.task_id, trial))
            entry.runs[run.key] = run
            self._state.spans.append(run.span)
            entry.job = replace(entry.job, elapsed_s=max(entry.job.elapsed_s, elapsed_s))
            return True

    def stage(self, key: StageKey) -> StageRun | None:
        with self._state.verb():
            return self._state.entry(key.job_id, key.task_id).runs.get(key)

    def stages(self, job_id: str) -> list[StageRun]:
        with self._state.verb():
            return [_without_bulk(run) for run in self._state.entry(job_id).runs.values()]

    def commit_step(
        self, run: StepRun, *, again: bool = False, leases: Sequence[Lease] = ()
    ) -> bool:
        rules.check_step(run)
        with self._state.verb():
            for lease in leases:
                self._coordination.check_current(lease)
            if run.key in self._state.steps and not again:
                return False
            self._state.steps.pop(run.key, None)
            self._state.steps[run.key] = run
            return True

    def step(self, key: StepKey) -> StepRun | None:
        with self._state.verb():
            return self._state.steps.get(key)

    def steps(self, owner: str) -> list[StepRun]:
        with self._state.verb():
            return [run for key, run in self._state.steps.items() if key.owner == owner]

    def forget_steps(self, owner: str) -> None:
        with self._state.verb():
            self._state.steps = {k: run for k, run in self._state.steps.items() if k.owner != owner}

    def stages_between(self, start: float, end: float) -> list[StageSpan]:
        rules.check_window(start, end)
        with self._state.verb():
            touching = [s for s in self._state.spans if s.started_at <= end and s.ended_at >= start]
            return sorted(touching, key=lambda span: span.started_at)

    def _shared(self, weighted: WeightedTask) -> WeightedTask:
        """With what another job has told of the task since."""
        precision = self._state.tasks[weighted.task.task_id].precision
        return replace(weighted, task=replace(weighted.task, precision=precision))


def _new_trials(entry: JobEntry, run: StageRun) -> list[Trial]:
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


def _selected(entry: JobEntry, key: StageKey) -> dict[str, Candidate]:
    run = entry.runs.get(replace(key, kind=StageKind.SELECT))
    if run is None or not isinstance(run.result, SelectResult):
        return {}
    return {c.candidate_id: c for c in reversed(run.result.candidates)}


def _build_seconds(entry: JobEntry, run: StageRun) -> dict[str, float]:
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
