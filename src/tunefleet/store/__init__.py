"""Durable state: the Store contract, the SQL store and an in-memory fake."""

from tunefleet.store._base import BestRecord, Jobs, Record, Records, Store, Work, each_job
from tunefleet.store._coordination import Coordination
from tunefleet.store._events import Events, KeptEvent
from tunefleet.store.memory import MemoryStore
from tunefleet.store.sql import SqlStore, open_store, store_path

__all__ = [
    "BestRecord",
    "Coordination",
    "Events",
    "Jobs",
    "KeptEvent",
    "MemoryStore",
    "Record",
    "Records",
    "SqlStore",
    "Store",
    "Work",
    "each_job",
    "open_store",
    "store_path",
]
