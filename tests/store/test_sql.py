from __future__ import annotations

import pytest

from tunefleet.store import SqlStore

from .conformance import StoreConformance


class TestSqlStore(StoreConformance):
    @pytest.fixture
    def store(self, sql_store: SqlStore) -> SqlStore:
        return sql_store
