from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)

from starlette.testclient import TestClient

from tunefleet.artifacts.blobs import keep, open_blobs
from tunefleet.core.home import Home
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.uploads import Admitted, admit
from tunefleet.service.app import ServiceSettings, service_app
from tunefleet.service.tokens import new_token
from tunefleet.service.uploads import UploadCheck
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


def unchecked(part: Path, name: str, context: BenchmarkContext) -> Admitted:
    """Keeps a file as it is."""
    blobs = open_blobs(Home(context.home).networks)
    blob = keep(blobs, {name: (part, hashlib.sha256(part.read_bytes()).hexdigest())})
    return Admitted(f"networks/{blob}/{name}", part.stat().st_size, 1)


def _world(home: Path, check: UploadCheck) -> Iterator[World]:
    store, woken = open_store(home), list[str]()
    app = service_app(home, store, ServiceSettings(most_bytes=1 << 20), woken.extend, check)
    with TestClient(app, base_url="http://testserver") as client:
        yield World(home, store, client, woken)
    store.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """It takes what is sent unread."""
    yield from _world(tmp_path, unchecked)


@pytest.fixture
def checking(tmp_path: Path) -> Iterator[World]:
    """It checks what is sent."""
    yield from _world(tmp_path, admit)


Send = Callable[..., Any]


@dataclass
class Receiver:
    """A webhook's server: responds with `status`, after `before` was called, and keeps the
    requests."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    came: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    before: Callable[[str], None] = lambda message_id: None


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.came.append((self.path, headers, body))
            made.before(headers.get("webhook-id", ""))
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://localhost:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()
