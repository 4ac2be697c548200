"""What stages read of earlier trials: of this job, and of other jobs where that is allowed."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TypeVar

from tunefleet.core.identity import Tier
from tunefleet.core.stage import StageKey, StageKind
from tunefleet.core.task import Task, TaskWeights
from tunefleet.costmodel.card import Card
from tunefleet.errors import InternalError
from tunefleet.search.guide import Pretrained
from tunefleet.stages import steering
from tunefleet.stages.place import JobTask, Workplace
from tunefleet.stages.weights import weights_of
from tunefleet.store import Record, Store

#: Records of earlier jobs that a task starts from, and that the first cost model learns from.
_KNOWN_RECORDS = 64
#: Seconds for which records of other jobs are taken as they were.
_KNOWN_FOR_S = 30.0

R = TypeVar("R")


def known_records(
    store: Store, lane: JobTask, tier: Tier, limit: int = _KNOWN_RECORDS
) -> list[Record]:
    """What other jobs measured of this task; nothing where transfer is switched off."""
    spec = lane.job.spec
    if not spec.settings.transfer:
        return []
    records = store.records.fastest(
        lane.task.task_id,
        spec.device,
        spec.toolchain,
        tier=tier,
        limit=limit,
        tenant=spec.tenant,
    )
    return [record for record in records if record.job_id != lane.job.job_id]


class Knowledge:
    """The caches of whoever runs stages: losing them costs time only."""

    def __init__(self, place: Workplace) -> None:
        self._place = place
        self.tasks = lru_cache(maxsize=16)(self._tasks_of)
        self.weights = lru_cache(maxsize=16)(self._weights_of)
        self._model = lru_cache(maxsize=4)(self._model_of)
        self._records: dict[tuple[str, str, Tier, int], tuple[float, list[Record]]] = {}

    def known(self, lane: JobTask, tier: Tier, limit: int = _KNOWN_RECORDS) -> list[Record]:
        """`known_records`, looked up anew when they are older than `_KNOWN_FOR_S`: an update asks
        for those of all tasks, which would take as long as its fit."""
        key = (lane.job.job_id, lane.task.task_id, tier, limit)
        now = time.monotonic()
        looked_up = self._records.get(key)
        if looked_up is None or now - looked_up[0] > _KNOWN_FOR_S:
            looked_up = (now, known_records(self._place.store, lane, tier, limit))
            self._records[key] = looked_up
        return looked_up[1]

    def pretrained(self, lane: JobTask) -> Pretrained | None:
        """The job's pretrained model, where it steers the search of the task."""
        model_id = lane.job.spec.settings.search.pretrained
        if not model_id:
            return None
        card, model = self._model(model_id)
        return model if steering.steers(card, lane.job.spec, lane.task) else None

    def best_latency(self, lane: JobTask) -> float | None:
        """The best known latency of a task in this job or, exactly, in earlier ones."""
        trials = self._place.store.records.trials(lane.job.job_id, lane.task.task_id)
        latencies = [trial.latency_s for trial in trials]
        latencies += [r.measurement.latency_s for r in self.known(lane, Tier.EXACT, 1)]
        return min((latency for latency in latencies if latency is not None), default=None)

    def _tasks_of(self, job_id: str) -> tuple[Task, ...]:
        return tuple(weighted.task for weighted in self._place.store.work.tasks(job_id))

    def _weights_of(self, job_id: str, timeout_s: float) -> dict[str, TaskWeights]:
        # In the device's worker, which is idle: the host's may be building another task's batch.
        return weights_of(self._place.store.work.tasks(job_id), self._place.pool, timeout_s)

    def _model_of(self, model_id: str) -> tuple[Card, Pretrained]:
        entry = self._place.models.get(model_id)
        return entry.card, Pretrained(entry.card.kind, str(entry.member(0)))


def committed(store: Store, key: StageKey, kind: StageKind, expected: type[R]) -> R:
    """The result of an earlier stage of the same round."""
    source = StageKey(key.job_id, key.task_id, key.iteration, kind)
    run = store.work.stage(source)
    if run is None or not isinstance(run.result, expected):
        raise InternalError(f"{key} was started before {source} was committed")
    return run.result
