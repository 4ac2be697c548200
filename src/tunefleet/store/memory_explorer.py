"""Lists of records, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tunefleet.core.stage import StageKey, StageKind
from tunefleet.core.trial import Failure, Trial
from tunefleet.store import rules
from tunefleet.store._explorer import (
    ListedRecord,
    RecordColumn,
    RecordFilter,
    RecordOrder,
    RecordPlace,
)
from tunefleet.store.columns import plain
from tunefleet.store.memory_learnings import MemoryLearnings
from tunefleet.store.memory_state import JobEntry, MemoryState

_UPPER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class MemoryExplorer(MemoryLearnings):
    """`RecordExplorer` in this process."""

    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._origins: dict[tuple[str, ...], int] = {}

    def page(
        self,
        chosen: RecordFilter,
        order: RecordOrder,
        *,
        after: RecordPlace | None = None,
        limit: int,
        tenant: str = "",
    ) -> list[ListedRecord]:
        rules.check_limit(limit)
        with self._state.verb():
            seen = self._state.seen_by(tenant)
            records = [
                self._record(entry, task_id, trial, seq, tenant, order)
                for seq, (entry, task_id, trial) in enumerate(self._state.trials, 1)
                if entry.job.spec.tenant in seen
            ]
        found = sorted(
            (record for record in records if _matches(record, chosen)),
            key=lambda record: _key(record.place, order),
            reverse=order.descending,
        )
        if after is not None:
            behind = _key(after, order)
            found = [
                record
                for record in found
                if (
                    _key(record.place, order) < behind
                    if order.descending
                    else _key(record.place, order) > behind
                )
            ]
        return found[:limit]

    def _record(
        self,
        entry: JobEntry,
        task_id: str,
        trial: Trial,
        seq: int,
        tenant: str,
        order: RecordOrder,
    ) -> ListedRecord:
        spec = entry.job.spec
        [task] = [w.task for w in entry.tasks if w.task.task_id == task_id]
        names = (plain(spec.network.name), plain(spec.device.name), plain(str(spec.target)))
        origin = (spec.tenant, *names, task_id, task.name)
        key = self._origins.setdefault(origin, len(self._origins) + 1)
        failure = trial.outcome.kind.value if isinstance(trial.outcome, Failure) else None
        network, device, target = names
        record = ListedRecord(
            place=RecordPlace(None, key, seq),
            own=spec.tenant == tenant,
            job_id=entry.job.job_id,
            network=network,
            device=device,
            target=target,
            task_id=task_id,
            name=task.name,
            operator=task.operator,
            shapes=task.shapes,
            flops=task.flops,
            candidate_id=trial.candidate.candidate_id,
            at=_began(entry, task_id, trial),
            latency_s=trial.latency_s,
            failure=failure,
        )
        return replace(record, place=RecordPlace(_value(record, order.column), key, seq))


def _began(entry: JobEntry, task_id: str, trial: Trial) -> float:
    """When the stage began that made a trial."""
    for kind in (StageKind.BUILD, StageKind.PROFILE):
        run = entry.runs.get(StageKey(entry.job.job_id, task_id, trial.iteration, kind))
        if run is not None and trial.candidate.candidate_id in rules.outcomes(run.result):
            return run.started_at
    return 0.0


def _value(record: ListedRecord, column: RecordColumn) -> str | float | None:
    if column is RecordColumn.MEASURED:
        return None
    if column is RecordColumn.LATENCY:
        return record.latency_s
    value: str = getattr(record, "name" if column is RecordColumn.TASK else column.value)
    return value


def _key(place: RecordPlace, order: RecordOrder) -> tuple[Any, ...]:
    """What records are compared by; of failures what makes them the last."""
    if order.column is RecordColumn.MEASURED:
        return (place.seq,)
    if order.column is not RecordColumn.LATENCY:
        return (place.value, place.origin, place.seq)
    is_last = (place.value is None) is not order.descending
    return (is_last, place.value or 0.0, place.origin, place.seq)


def _matches(record: ListedRecord, chosen: RecordFilter) -> bool:
    of = (record.network, record.name, record.operator, record.device, record.target)
    begins = _lower(record.task_id).startswith(_lower(chosen.task))
    return (
        _has(record.network, chosen.network)
        and _has(record.device, chosen.device)
        and _has(record.target, chosen.target)
        and _has(record.operator, chosen.operator)
        and (begins or _has(record.name, chosen.task))
        and any(_has(text, chosen.text) for text in (*of, record.shapes))
    )


def _has(text: str, wanted: str) -> bool:
    return _lower(wanted) in _lower(text)


def _lower(text: str) -> str:
    """In small letters, as far as databases compare them so."""
    return text.translate(_UPPER)
