"""A process that commits: `committer.py FILE FIRST COUNT`, started by test_processes.

It waits for a line, then commits iterations FIRST .. FIRST + COUNT - 1 of one job, which it opens
itself, and prints after each profile stage its number and whether this process committed it.
"""

from __future__ import annotations

import sys

import values as v  # type: ignore[import-not-found]  # beside this file, which is a script

from tunefleet.core.stage import Profiled, ProfileResult, SelectResult
from tunefleet.store import SqlStore

#: Candidates of each iteration; the first is the same in all of them.
BATCH = 6


def names(iteration: int) -> list[str]:
    return ["same", *(f"{iteration}.{i}" for i in range(BATCH - 1))]


def main(path: str, first: int, count: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    store = SqlStore.open(path)
    v.open_with_task(store, "job")
    for iteration in range(first, first + count):
        chosen = tuple(v.cand(n, features=b"f" * 4096) for n in names(iteration))
        measured = tuple(Profiled(n, v.measured(*[1e-3] * 20), 0.1) for n in names(iteration))
        store.work.commit(v.run_of(SelectResult(chosen), iteration=iteration), elapsed_s=iteration)
        mine = store.work.commit(v.run_of(ProfileResult(measured), iteration=iteration))
        print(iteration, int(mine), flush=True)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
