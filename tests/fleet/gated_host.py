"""A host in a process of its own whose stages a test ends: its arguments are the URL of a store,
the folder of the gate, its name, and that of its core."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from tunefleet.fleet.executor import LocalExecutor
from tunefleet.fleet.host import Host
from tunefleet.fleet.leases import Leases
from tunefleet.scheduler.values import Resource, Role
from tunefleet.store import open_store
from tunefleet.testing.executor_conformance import Gate, GatedRunner, unheard


def main(url: str, folder: str, name: str, core: str) -> None:
    with closing(open_store(url)) as store, closing(Leases(store.coordination)) as leases:
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        host = Host(store, name, ended)
        resource = Resource(f"{name}/host", Role.HOST, "host", frozenset({core}))
        runner: Any = GatedRunner(Gate(Path(folder)))
        host.run({"host": LocalExecutor(resource, (), runner, store, leases, host.report, unheard)})


if __name__ == "__main__":
    main(*sys.argv[1:])
