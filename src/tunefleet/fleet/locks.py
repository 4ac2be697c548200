"""One process per job: a lock that the kernel releases however the process ends.

The file names the process that had the lock last, until that has told its user what came of the
job. So it is known of a job that is done whether its command was killed in its last moments.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tunefleet.errors import InputError


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


def _file(directory: Path, fingerprint: str) -> Path:
    return directory / f"{fingerprint}.lock"


def was_told(directory: Path, fingerprint: str) -> bool:
    """Whether the process that had the lock last came to its end, and told of it."""
    try:
        return not _file(directory, fingerprint).read_text()
    except FileNotFoundError:
        return True


def tell(directory: Path, fingerprint: str) -> None:
    """What came of the job is told, unless another process works on it by now."""
    path = _file(directory, fingerprint)
    with suppress(FileNotFoundError, BlockingIOError), path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate()


@contextmanager
def job_lock(directory: Path, fingerprint: str) -> Iterator[None]:
    """Hold the lock of a job; raises InputError naming the process that has it."""
    with _file(directory, fingerprint).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            if holder == str(os.getpid()):
                raise InputError(
                    "this job is there twice: two of the networks are the same",
                    cure="name each network once",
                ) from None
            raise InputError(
                f"this job is being tuned by process {holder}",
                cure="wait for it, or give another --seed for a job of its own",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
