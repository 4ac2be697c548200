from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)

from starlette.testclient import TestClient

from tunefleet.service.app import ServiceSettings, service_app
from tunefleet.service.tokens import new_token
from tunefleet.store import SqlStore, User, open_store


@dataclass
class World:
    """A service without a scheduler, and its users."""

    home: Path
    store: SqlStore
    client: TestClient
    woken: list[str]

    def user(self, name: str, *, admin: bool = False, **more: Any) -> dict[str, str]:
        """A user; the headers of one of their tokens."""
        self.store.accounts.put_user(User(name, admin=admin, created_at=time.time(), **more))
        text, token = new_token(name, time.time(), admin=admin)
        self.store.accounts.put_token(token)
        return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store, woken = open_store(tmp_path), list[str]()
    app = service_app(tmp_path, store, ServiceSettings(most_bytes=1 << 20), woken.extend)
    with TestClient(app, base_url="http://testserver") as client:
        yield World(tmp_path, store, client, woken)
    store.close()


Send = Callable[..., Any]
