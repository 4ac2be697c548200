"""Durable state: the Store contract, the SQL store and an in-memory fake."""

from tunefleet.store._base import (
    BestEntry,
    BestRecord,
    JobOutcome,
    Jobs,
    Record,
    Store,
    StoredRecords,
    StoredWork,
    each_job,
    job_pages,
)
from tunefleet.store._coordination import Coordination
from tunefleet.store._dispatch import Dispatch
from tunefleet.store._events import Events, KeptEvent
from tunefleet.store.memory import MemoryStore
from tunefleet.store.sql import SqlStore, open_store, store_path

__all__ = [
    "BestEntry",
    "BestRecord",
    "Coordination",
    "Dispatch",
    "Events",
    "JobOutcome",
    "Jobs",
    "KeptEvent",
    "MemoryStore",
    "Record",
    "SqlStore",
    "Store",
    "StoredRecords",
    "StoredWork",
    "each_job",
    "job_pages",
    "open_store",
    "store_path",
]
