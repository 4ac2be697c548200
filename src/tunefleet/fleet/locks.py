"""One process per job: a lock that the kernel releases however the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tunefleet.errors import InputError


@contextmanager
def job_lock(directory: Path, fingerprint: str) -> Iterator[None]:
    """Hold the lock of a job; raises InputError naming the process that has it."""
    with (directory / f"{fingerprint}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise InputError(
                f"this job is being tuned by process {holder}",
                cure="wait for it, or give another --seed for a job of its own",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
