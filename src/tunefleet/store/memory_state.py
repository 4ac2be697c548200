"""What a store in memory remembers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from tunefleet.core.identity import DeviceIdentity, Tier, ToolchainIdentity
from tunefleet.core.job import Job
from tunefleet.core.stage import (
    StageKey,
    StageRun,
    StageSpan,
)
from tunefleet.core.step import StepKey, StepRun
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import Trial
from tunefleet.errors import InternalError
from tunefleet.store import rules
from tunefleet.store._accounts import EVERYONE


@dataclass
class JobEntry:
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

    def is_of(
        self,
        tier: Tier,
        device: DeviceIdentity,
        toolchain: ToolchainIdentity,
        tenants: Collection[str],
    ) -> bool:
        spec = self.job.spec
        if spec.shared or spec.tenant not in tenants:
            return False  # its measurements serve no other job, or none of theirs
        exact = self.is_measured_by(device, toolchain)
        compatible = (
            spec.device.compatible == device.compatible
            and spec.toolchain.compatible == toolchain.compatible
        )
        return exact if tier is Tier.EXACT else compatible and not exact


class MemoryState:
    """Shared by the parts of a MemoryStore. One lock makes each verb one transaction."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._closed = False
        self.entries: dict[str, JobEntry] = {}
        self.tasks: dict[str, Task] = {}
        self.trials: list[tuple[JobEntry, str, Trial]] = []
        self.spans: list[StageSpan] = []
        self.steps: dict[StepKey, StepRun] = {}
        self.shares: set[tuple[str, str]] = set()

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def verb(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise InternalError("the store is closed")
            yield

    def seen_by(self, tenant: str) -> set[str]:
        """The tenants whose records one is given."""
        return {tenant, *(o for o, reader in self.shares if reader in (tenant, EVERYONE))}

    def entry(self, job_id: str, task_id: str | None = None) -> JobEntry:
        if job_id not in self.entries:
            raise rules.unknown_job(job_id)
        entry = self.entries[job_id]
        if task_id is not None and all(t.task.task_id != task_id for t in entry.tasks):
            raise rules.unknown_task(task_id, job_id)
        return entry
