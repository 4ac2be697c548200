"""What was measured, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tunefleet.core.forecast import TaskCurve
from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.stage import (
    UpdateResult,
)
from tunefleet.core.trial import Failure, FailureKind, Measurement, Trial
from tunefleet.store import rules
from tunefleet.store._base import FIRST, PAGE, BestEntry, BestRecord, EntryPlace, Record
from tunefleet.store.memory_state import JobEntry, MemoryState


class MemoryRecords:
    """`StoredRecords` in this process."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def trials(self, job_id: str, task_id: str | None = None) -> list[Trial]:
        with self._state.verb():
            trials = self._state.entry(job_id, task_id).trials
            return [t for (of, _), t in trials.items() if task_id in (None, of)]

    def trial_count(self, job_id: str) -> int:
        with self._state.verb():
            return len(self._state.entry(job_id).trials)

    def curves(self, job_id: str) -> list[TaskCurve]:
        with self._state.verb():
            entry = self._state.entry(job_id)
            latencies: dict[str, dict[int, float | None]] = {}
            for number, ((task_id, _), trial) in enumerate(entry.trials.items()):
                latencies.setdefault(task_id, {})[number] = trial.latency_s
            return [
                TaskCurve(
                    task.task_id, task.operator, task.flops, weighted.weight,
                    tuple(of_task.values()), tuple(of_task),
                )
                for weighted in entry.tasks
                for task in (weighted.task,)
                if (of_task := latencies.get(task.task_id))
            ]  # fmt: skip

    def model(self, job_id: str) -> UpdateResult:
        with self._state.verb():
            for run in reversed(self._state.entry(job_id).runs.values()):
                if isinstance(run.result, UpdateResult) and run.result.model:
                    return run.result
            return UpdateResult()

    def fastest(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tier: Tier,
        limit: int,
        tenant: str = "",
    ) -> list[Record]:
        rules.check_limit(limit)
        with self._state.verb():
            tenants = self._state.seen_by(tenant)
            if task_id not in self._state.tasks:
                raise rules.unknown_task(task_id)
            asked = {
                job_id: self._wrong(task_id, device, toolchain)
                | self._wrong(task_id, *entry.measured_by)
                for job_id, entry in self._state.entries.items()
                if entry.is_of(tier, device, toolchain, tenants)
            }
            measured = [
                _record(entry, task_id, trial)
                for entry, of, trial in self._state.trials
                if of == task_id
                and trial.latency_s is not None
                and entry.job.job_id in asked
                and trial.candidate.candidate_id not in asked[entry.job.job_id]
            ]
        fastest: dict[str, Record] = {}
        for record in sorted(measured, key=lambda r: r.measurement.latency_s):
            fastest.setdefault(record.candidate.candidate_id, record)
        return list(fastest.values())[:limit]

    def fastest_of_operator(
        self,
        operator: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        measured: int = 1,
        tenant: str = "",
    ) -> list[BestRecord]:
        fastest: dict[str, BestRecord] = {}
        count: Counter[str] = Counter()
        with self._state.verb():
            tenants = self._state.seen_by(tenant)
            for entry, task_id, trial in self._state.trials:
                task = self._state.tasks[task_id]
                here = any(entry.is_of(tier, device, toolchain, tenants) for tier in Tier)
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
        with self._state.verb():
            own = self._state.entry(job_id, task_id)
            own.winners[task_id] = (winner, checks)
            for candidate_id, failure in rejected:
                for entry in self._state.entries.values():
                    trial = entry.trials.get((task_id, candidate_id))
                    if trial is not None and entry.is_measured_by(*own.measured_by):
                        entry.trials[task_id, candidate_id] = replace(trial, outcome=failure)
            self._state.trials = [
                (entry, of, entry.trials[of, trial.candidate.candidate_id])
                for entry, of, trial in self._state.trials
            ]

    def winners(self, job_id: str) -> dict[str, tuple[Trial | None, Any]]:
        with self._state.verb():
            return deepcopy(self._state.entry(job_id).winners)

    def best(
        self,
        task_id: str,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        *,
        tenant: str = "",
    ) -> Record | None:
        """The entry of the best-only table: the fastest winner any job delivered here."""
        with self._state.verb():
            tenants = self._state.seen_by(tenant)
            decided = [
                _record(entry, task_id, winner)
                for entry in self._state.entries.values()
                if entry.is_of(Tier.EXACT, device, toolchain, tenants)
                if (winner := entry.winners.get(task_id, (None,))[0]) is not None
            ]
            return min(decided, key=lambda r: r.measurement.latency_s, default=None)

    def best_page(
        self,
        *,
        operator: str = "",
        after: EntryPlace = FIRST,
        limit: int = PAGE,
        tenant: str = "",
    ) -> list[BestEntry]:
        rules.check_limit(limit)
        with self._state.verb():
            tenants = self._state.seen_by(tenant)
            entries: dict[EntryPlace, BestEntry] = {}
            for entry in self._state.entries.values():
                if entry.job.spec.shared or entry.job.spec.tenant not in tenants:
                    continue
                tasks = {weighted.task.task_id: weighted.task for weighted in entry.tasks}
                for task_id, (winner, checks) in entry.winners.items():
                    task = tasks[task_id]
                    if winner is None or (operator and task.operator != operator):
                        continue
                    record = _record(entry, task_id, winner)
                    made = BestEntry(task, entry.job.spec.target, record, checks)
                    known = entries.setdefault(made.place, made)
                    if record.measurement.latency_s < known.record.measurement.latency_s:
                        entries[made.place] = made
            return [entries[place] for place in sorted(entries) if place > after][:limit]

    def _wrong(
        self, task_id: str, device: DeviceIdentity, toolchain: ToolchainIdentity
    ) -> set[str]:
        return {
            trial.candidate.candidate_id
            for entry, of, trial in self._state.trials
            if of == task_id
            and entry.is_measured_by(device, toolchain)
            and isinstance(trial.outcome, Failure)
            and trial.outcome.kind is FailureKind.WRONG_ANSWER
        }


def _record(entry: JobEntry, task_id: str, trial: Trial) -> Record:
    assert isinstance(trial.outcome, Measurement)
    spec, job_id = entry.job.spec, entry.job.job_id
    return Record(task_id, job_id, trial.candidate, trial.outcome, spec.device, spec.toolchain)
