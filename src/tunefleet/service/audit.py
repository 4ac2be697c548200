"""What users did, as JSON lines that only the operator may read."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any


class AuditLog:
    """Appends to a file; any thread may."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def keep(self, user: str, did: str, **what: Any) -> None:
        """That a user did something. No secrets."""
        line = json.dumps({"at": time.time(), "user": user, "did": did, **what}) + "\n"
        with self._lock:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
