"""The contract of lists of records, every trial that a tenant may see, filtered and sorted; and of
what was learned from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tunefleet.store._learnings import Learning


class RecordColumn(StrEnum):
    """What lists of records are sorted by; MEASURED is the order of commit."""

    MEASURED = "measured"
    NETWORK = "network"
    TASK = "task"
    OPERATOR = "operator"
    DEVICE = "device"
    TARGET = "target"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Records that have each of these texts, in letters of either case: in the name of their
    network, device or target, in the operator of their task; `task` in its name or at the beginning
    of its id; `text` in any of these or in the task's shapes."""

    network: str = ""
    device: str = ""
    target: str = ""
    task: str = ""
    operator: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RecordOrder:
    """Ascending unless `descending`. Failures, which have no latency, follow the others both ways;
    of equals those of the same origin follow each other, in the order of commit."""

    column: RecordColumn = RecordColumn.MEASURED
    descending: bool = True


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record stands in an order: the value of the column (None for a failure, or where the
    order is that of commit), its origin, its number."""

    value: str | float | None
    origin: int
    seq: int


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A trial, and where it comes from. `at` is when its stage began, in seconds since the epoch;
    `latency_s` is None for a failure, whose kind is `failure`. `own`: it is the tenant's, and was
    not shared with it."""

    place: RecordPlace
    own: bool
    job_id: str
    network: str
    device: str
    target: str
    task_id: str
    name: str
    operator: str
    shapes: str
    flops: float
    candidate_id: str
    at: float
    latency_s: float | None
    failure: str | None


class RecordExplorer(Protocol):
    """What a tenant may see of the records of all, and what its cost models learned from them."""

    def page(
        self,
        chosen: RecordFilter,
        order: RecordOrder,
        *,
        after: RecordPlace | None = None,
        limit: int,
        tenant: str = "",
    ) -> list[ListedRecord]:
        """The first `limit` records behind a place, of those of a tenant and those shared with it
        or with all, also where they were measured beside other work."""

    def add_learning(self, learning: Learning) -> None:
        """Keep what came of a time of learning."""

    def learnings(self, tenant: str, limit: int) -> list[Learning]:
        """The newest learnings of a tenant, newest first."""

    def learned(self, tenant: str, job_ids: tuple[str, ...]) -> set[str]:
        """Those of these jobs whose records a learning of this tenant had."""

    def owners(self, tenant: str) -> set[str]:
        """The tenants whose records one may learn from: it, and those that share with it."""
