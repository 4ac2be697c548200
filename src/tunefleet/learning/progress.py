"""Progress messages of training."""

from __future__ import annotations

import time
from collections.abc import Callable

ReportProgress = Callable[[str], None]

#: Seconds between two messages.
_EVERY_S = 5.0


def paced(progress: ReportProgress, clock: Callable[[], float] = time.monotonic) -> ReportProgress:
    """Forwards a message if the last one, or the start, was at least `_EVERY_S` ago."""
    reported_at = clock()

    def report(text: str) -> None:
        nonlocal reported_at
        if clock() - reported_at >= _EVERY_S:
            reported_at = clock()
            progress(text)

    return report
