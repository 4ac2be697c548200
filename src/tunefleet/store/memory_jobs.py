"""The jobs of a store in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from tunefleet.core.events import JobEnded
from tunefleet.core.job import Job, JobSpec, JobState
from tunefleet.store import rules
from tunefleet.store._base import PAGE, JobOutcome
from tunefleet.store.memory_coordination import MemoryCoordination
from tunefleet.store.memory_events import MemoryEvents
from tunefleet.store.memory_state import JobEntry, MemoryState


class MemoryJobs:
    """`Jobs` in this process."""

    def __init__(
        self, state: MemoryState, coordination: MemoryCoordination, events: MemoryEvents
    ) -> None:
        self._state = state
        self._coordination = coordination
        self._events = events

    def open(self, spec: JobSpec, *, job_id: str, now: float) -> Job:
        with self._state.verb():
            for entry in reversed(self._state.entries.values()):
                same = entry.job.spec.fingerprint == spec.fingerprint
                if same and entry.job.state is JobState.RUNNING:
                    entry.job = replace(entry.job, spec=spec)
                    return entry.job
            if job_id in self._state.entries:
                raise rules.taken(job_id)
            job = Job(job_id, spec, JobState.RUNNING, now)
            self._state.entries[job_id] = JobEntry(job)
            return job

    def get(self, job_id: str) -> Job:
        with self._state.verb():
            return self._state.entry(job_id).job

    def page(
        self,
        *,
        after: str = "",
        limit: int = PAGE,
        state: JobState | None = None,
        fingerprint: str = "",
        prefix: str = "",
        tenant: str | None = None,
    ) -> list[Job]:
        rules.check_limit(limit)
        with self._state.verb():
            newest = [entry.job for entry in reversed(self._state.entries.values())]
            if after:
                newest = newest[newest.index(self._state.entry(after).job) + 1 :]
            return [
                job
                for job in newest
                if state in (None, job.state)
                and fingerprint in ("", job.spec.fingerprint)
                and job.job_id.startswith(prefix)
                and tenant in (None, job.spec.tenant)
            ][:limit]

    def finish(
        self, job_id: str, state: JobState, summary: Any, ended: JobEnded | None = None
    ) -> None:
        rules.check_closing(state)
        summary = rules.json_value(summary, "summary")
        with self._state.verb():
            entry = self._state.entry(job_id)
            entry.job = replace(entry.job, state=state)
            entry.summary = summary
            if ended is not None:
                self._events.append(job_id, time.time(), [ended])

    def summary(self, job_id: str) -> Any:
        with self._state.verb():
            return deepcopy(self._state.entry(job_id).summary)

    def outcomes(self, job_ids: Sequence[str]) -> dict[str, JobOutcome]:
        with self._state.verb():
            known = {i: self._state.entries[i] for i in job_ids if i in self._state.entries}
            return {
                job_id: JobOutcome(deepcopy(entry.summary), len(entry.trials))
                for job_id, entry in known.items()
            }

    def remove(self, job_id: str) -> None:
        with self._state.verb():
            entry = self._state.entry(job_id)
            del self._state.entries[job_id]
            self._coordination.forget(job_id)
            self._state.trials = [trial for trial in self._state.trials if trial[0] is not entry]
            self._state.spans = [span for span in self._state.spans if span.key.job_id != job_id]
            self._state.steps = {k: r for k, r in self._state.steps.items() if k.owner != job_id}
            self._events.remove(job_id)
