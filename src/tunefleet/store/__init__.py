"""Durable state: the Store contract, the SQL store and an in-memory fake."""

from tunefleet.store._accounts import (
    EVERYONE,
    OWN_COMMANDS,
    AccessToken,
    Accounts,
    AnsweredRequest,
    Holdings,
    KeptNetwork,
    Quota,
    User,
)
from tunefleet.store._base import (
    FIRST,
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
from tunefleet.store._explorer import (
    ListedRecord,
    RecordColumn,
    RecordExplorer,
    RecordFilter,
    RecordOrder,
    RecordPlace,
)
from tunefleet.store._learnings import Learning, LearningOutcome
from tunefleet.store._webhooks import (
    KEPT_DELIVERIES,
    KEPT_DELIVERIES_S,
    DeliveryState,
    Webhook,
    WebhookDelivery,
    Webhooks,
)
from tunefleet.store.memory import MemoryStore
from tunefleet.store.sql import SqlStore, open_store, store_path

__all__ = [
    "EVERYONE",
    "FIRST",
    "KEPT_DELIVERIES",
    "KEPT_DELIVERIES_S",
    "OWN_COMMANDS",
    "AccessToken",
    "Accounts",
    "AnsweredRequest",
    "BestEntry",
    "BestRecord",
    "Coordination",
    "DeliveryState",
    "Dispatch",
    "Events",
    "Holdings",
    "JobOutcome",
    "Jobs",
    "KeptEvent",
    "KeptNetwork",
    "Learning",
    "LearningOutcome",
    "ListedRecord",
    "MemoryStore",
    "Quota",
    "Record",
    "RecordColumn",
    "RecordExplorer",
    "RecordFilter",
    "RecordOrder",
    "RecordPlace",
    "SqlStore",
    "Store",
    "StoredRecords",
    "StoredWork",
    "User",
    "Webhook",
    "WebhookDelivery",
    "Webhooks",
    "each_job",
    "job_pages",
    "open_store",
    "store_path",
]
