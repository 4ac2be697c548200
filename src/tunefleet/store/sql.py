"""The durable store: portable SQL through SQLAlchemy Core, one transaction per verb."""

from __future__ import annotations

from pathlib import Path

from tunefleet.core.home import Home
from tunefleet.errors import SetupError
from tunefleet.store.database import Database, url_of
from tunefleet.store.revisions import bring_to_head
from tunefleet.store.sql_accounts import SqlAccounts, SqlHoldings
from tunefleet.store.sql_coordination import SqlCoordination
from tunefleet.store.sql_dispatch import SqlDispatch
from tunefleet.store.sql_events import SqlEvents
from tunefleet.store.sql_explorer import SqlExplorer
from tunefleet.store.sql_jobs import SqlJobs
from tunefleet.store.sql_records import SqlRecords
from tunefleet.store.sql_webhooks import SqlWebhooks
from tunefleet.store.sql_work import SqlWork


def store_path(home: Path) -> Path:
    """Where the store of a home directory lies."""
    return Home(home).store


def open_store(place: Path | str) -> SqlStore:
    """The store at a URL (`sqlite:///PATH`), or that of a home directory, which is created when
    missing."""
    if "://" in str(place):
        return SqlStore.open(str(place))
    home = Path(place)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"{home} cannot be the home of a store: {error.strerror}", cure="give another --home"
        ) from error
    return SqlStore.open(store_path(home))


class SqlStore:
    """A `Store` in a SQLite file. A forked or spawned process may use or open it as well."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.jobs = SqlJobs(database)
        self.work = SqlWork(database)
        self.records = SqlRecords(database)
        self.explorer = SqlExplorer(database)
        self.coordination = SqlCoordination(database)
        self.events = SqlEvents(database)
        self.dispatch = SqlDispatch(database)
        self.accounts = SqlAccounts(database)
        self.holdings = SqlHoldings(database)
        self.webhooks = SqlWebhooks(database)

    @classmethod
    def open(cls, url_or_path: str | Path, *, busy_timeout_s: float = 30.0) -> SqlStore:
        """Open, create or upgrade a file; its directory exists. One that a process left without
        closing it is checked first.

        A verb waits `busy_timeout_s` for other writers, then raises RetryElsewhereError.
        """
        database = Database(url_of(url_or_path), busy_timeout_s=busy_timeout_s)
        try:
            if database.left_open():
                database.check()
            bring_to_head(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        self._database.close()
