from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tunefleet.errors import LeaseLostError
from tunefleet.store import SqlStore

from .conformance import StoreConformance
from .conformance_coordination import LONG_S, claim, granted


class TestSqlStore(StoreConformance):
    @pytest.fixture
    def store(self, sql_store: SqlStore) -> SqlStore:
        return sql_store

    def test_a_lease_of_another_boot_is_over(self, store: SqlStore, path: Path) -> None:
        lease = granted(store.coordination.acquire(claim("a", "core 0"), LONG_S))
        store.coordination.acquire(claim("waits", "core 0"), LONG_S)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE claims SET boot = 'before'")
        assert store.coordination.claims() == []
        with pytest.raises(LeaseLostError):
            store.coordination.renew(lease, LONG_S)
        assert granted(store.coordination.acquire(claim("b", "core 0"), LONG_S)).epoch > lease.epoch
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT claim_id FROM claims").fetchall() == [("b",)]
