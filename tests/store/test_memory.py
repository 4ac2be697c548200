from __future__ import annotations

import pytest

from tunefleet.store import MemoryStore

from .conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()
