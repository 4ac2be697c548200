"""What users did, as JSON lines that only the operator may read."""

from __future__ import annotations

import json
import os
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

#: The client of the request that is handled.
_address: ContextVar[str] = ContextVar("client_address", default="")


class ClientAddresses:
    """Middleware: entries of the audit log have the address of the request's client. Of a named
    proxy the server has put that which the proxy reports (`Listening.proxies`)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        _address.set(client[0] if client else "")
        await self._app(scope, receive, send)


class AuditLog:
    """Appends to a file; any thread may."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def keep(self, user: str, did: str, **what: Any) -> None:
        """Add an entry: a user did something, from the address of the request. No secrets."""
        entry = {"at": time.time(), "user": user, "address": _address.get(), "did": did, **what}
        line = json.dumps(entry) + "\n"
        with self._lock:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
