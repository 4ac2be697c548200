"""Signals that end a command raise KeyboardInterrupt in the main thread, but not inside a
transaction.

Python runs a signal's handler between two steps of the main thread, for example between taking a
lock and the `try` that gives it back. A lock that is kept so makes every later transaction of the
process wait for its time limit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: How many `Uninterrupted` blocks the main thread is in, and whether a signal came meanwhile.
_depth = 0
_pending = False


@contextmanager
def interrupting() -> Iterator[list[int]]:
    """SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt; the list gets the signals that came.

    Only in the main thread, where signals arrive, and not for signals that have a handler."""
    came: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        global _pending
        came.append(number)
        if _depth:
            _pending = True
        else:
            raise KeyboardInterrupt

    before = {}
    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores SIGHUP.
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Uninterrupted:
    """A `with` block that a signal of `interrupting` does not end before its own end.

    It is a class because the handler may run as a generator's context is entered. Other threads
    are never interrupted."""

    def __init__(self) -> None:
        self._counts = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        global _depth
        if self._counts:
            _depth += 1

    def __exit__(self, *exc: object) -> None:
        global _depth, _pending
        if not self._counts:
            return
        _depth -= 1
        if _pending and not _depth:
            _pending = False
            raise KeyboardInterrupt
