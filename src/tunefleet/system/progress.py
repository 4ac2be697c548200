"""Signs of progress of a process that another one watches.

The process writes what it works on to a file, which costs some microseconds. The one that watches
reads it and notices when it changes no more.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

_MOST_BYTES = 300

_file: int | None = None
_count = itertools.count()


def report_to(path: Path) -> None:
    """From now on `working_on` of this process writes to `path`."""
    global _file
    _file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_reported() -> bool:
    """Whether anybody watches this process."""
    return _file is not None


def working_on(what: str) -> None:
    """Report progress, and what is done next: an operator, a pass, a function."""
    if _file is not None:
        text = f"{next(_count)} {what}".encode(errors="replace")[:_MOST_BYTES]
        os.pwrite(_file, text.ljust(_MOST_BYTES), 0)


class ProgressWatch:
    """What a process that reports to `path` works on, and since when."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen, self._since = "", time.monotonic()

    def work(self) -> str:
        """What is worked on; empty where nothing was reported."""
        return self._read().partition(" ")[2].strip()

    def still_s(self) -> float:
        """Seconds since the last report that a call of this function noticed."""
        seen = self._read()
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
