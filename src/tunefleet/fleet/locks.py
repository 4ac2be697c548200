"""One process per job: a lock that the kernel releases however the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tunefleet.errors import InputError, StoreBusyError

_TRIES, _BETWEEN_S = 5, 0.02


def is_locked(directory: Path, fingerprint: str) -> bool:
    """Whether a process that lives holds the lock of a job."""
    try:
        with _file(directory, fingerprint).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _take(file: IO[str]) -> None:
    """Take a lock; raises BlockingIOError where another has it, and not for a moment only:
    `is_locked` holds a shared one while it looks."""
    for _ in range(_TRIES - 1):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_BETWEEN_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _file(directory: Path, fingerprint: str) -> Path:
    return directory / f"{fingerprint}.lock"


@contextmanager
def job_lock(directory: Path, fingerprint: str) -> Iterator[None]:
    """Hold the lock of a job; raises StoreBusyError naming the process that has it, InputError
    where this one has."""
    with _file(directory, fingerprint).open("a+") as file:
        try:
            _take(file)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            if holder == str(os.getpid()):
                raise InputError(
                    "this job is there twice: two of the networks are the same",
                    cure="name each network once",
                ) from None
            raise StoreBusyError(
                f"this job is being tuned by process {holder}",
                cure="wait for it, or give another --seed for a job of its own",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
