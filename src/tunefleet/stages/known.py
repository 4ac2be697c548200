"""What earlier jobs verified of a network's tasks, and the module that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunefleet.core.known import KnownProgram, KnownPrograms
from tunefleet.core.network import SEGMENT_PREFIX
from tunefleet.core.step import Compiled, Preparation
from tunefleet.core.task import WeightedTask
from tunefleet.core.trial import Trial
from tunefleet.stages.place import Delivery
from tunefleet.store import Store


def known_programs(
    store: Store, preparation: Preparation, task_ids: Iterable[str], from_job: str = ""
) -> KnownPrograms:
    """The fastest verified program of each task, by task id, of exactly the preparation's device
    and toolchain: of all jobs, or `from_job` alone."""
    winners: dict[str, Mapping[str, tuple[Trial | None, Any]]] = {}
    known: dict[str, KnownProgram] = {}
    for task_id in task_ids:
        job_id = from_job
        if not job_id:
            record = store.records.best(
                task_id, preparation.device, preparation.toolchain, tenant=preparation.source.tenant
            )
            if record is None:
                continue
            job_id = record.job_id
        if job_id not in winners:
            winners[job_id] = store.records.winners(job_id)
        winner, checks = winners[job_id].get(task_id, (None, None))
        if winner is not None:
            known[task_id] = KnownProgram(job_id, winner, checks)
    return known


def programs_of(store: Store, delivery: Delivery, tasks: Iterable[WeightedTask]) -> KnownPrograms:
    """What a delivery takes for each task that does not keep its plain schedule: the winner of its
    job, without a job the programs that it names, or else the best that are known by now."""
    if delivery.job is None and delivery.programs is not None:
        return delivery.programs
    task_ids = [weighted.task.task_id for weighted in tasks]
    job_id = delivery.job.job_id if delivery.job is not None else ""
    return known_programs(store, delivery.preparation, task_ids, job_id)


def known_share(
    tasks: Iterable[WeightedTask],
    known: KnownPrograms,
    compiled: Compiled,
    kernels: Mapping[str, float],
) -> float | None:
    """The share of the latency of a module's tasks that those with a verified program take.
    `kernels` are its seconds by kernel; None where they are needed and not known."""
    missing = [weighted for weighted in tasks if weighted.task.task_id not in known]
    if not missing:
        return 1.0
    if not known:
        return 0.0
    plain = sum(kernels.get(name, 0.0) for name in compiled.plain)
    total = sum(s for name, s in kernels.items() if not name.startswith(SEGMENT_PREFIX))
    return 1 - plain / total if plain and total else None
