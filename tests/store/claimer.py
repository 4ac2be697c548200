"""A process that leases one unit again and again: `claimer.py FILE NAME COUNT`, started by
test_processes. It waits for a line, and prints when each lease began and ended."""

from __future__ import annotations

import sys
import time

from tunefleet.core.coordination import Claim, Holder, Lease, ProcessIdentity
from tunefleet.store import SqlStore


def main(path: str, name: str, count: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    store = SqlStore.open(path)
    holder = Holder(ProcessIdentity("here", "boot", 1, 2))
    for number in range(count):
        claim = Claim(f"{name}.{number}", frozenset({"core 0"}), holder)
        while not isinstance(lease := store.coordination.acquire(claim, 60.0), Lease):
            time.sleep(0.001)
        began = time.monotonic_ns()
        time.sleep(0.002)
        print(lease.epoch, began, time.monotonic_ns(), flush=True)
        store.coordination.release(claim.claim_id)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
