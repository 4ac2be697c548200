"""The clock of the shell."""

from __future__ import annotations

import time


def now() -> float:
    """Seconds of a clock that nobody sets."""
    return time.monotonic()
