"""A server of a home in a thread of the tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunefleet import BenchmarkContext
from tunefleet.runs.serving import Server
from tunefleet.runs.submitting import server_of


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
