"""How far training has come, in lines for whoever waits."""

from __future__ import annotations

import time
from collections.abc import Callable

TellProgress = Callable[[str], None]

#: Seconds between two lines about the same thing.
_EVERY_S = 5.0


def paced(progress: TellProgress, clock: Callable[[], float] = time.monotonic) -> TellProgress:
    """Passes a line on when the last one, or the start, is some seconds ago."""
    told = clock()

    def tell(text: str) -> None:
        nonlocal told
        if clock() - told >= _EVERY_S:
            told = clock()
            progress(text)

    return tell
