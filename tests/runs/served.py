"""A server of a home in a thread of the tests, and the end of a process that works for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tunefleet import BenchmarkContext
from tunefleet.runs.serving import Server
from tunefleet.runs.submitting import server_of
from tunefleet.store import open_store


@contextmanager
def served(home: Path) -> Iterator[None]:
    server = Server(BenchmarkContext("cpu", threads=1, home=home))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while server_of(home) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        server.stop()
        thread.join()


@contextmanager
def killed(home: Path) -> Iterator[None]:
    """The first other process that takes a job of a home is killed at once."""
    ended = threading.Event()

    def kill() -> None:
        with closing(open_store(home)) as store:
            while not ended.wait(0.01):
                for status in store.coordination.claims():
                    pid = status.claim.holder.process.pid
                    if pid != os.getpid() and any(u.startswith("job ") for u in status.claim.units):
                        os.kill(pid, signal.SIGKILL)
                        return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
