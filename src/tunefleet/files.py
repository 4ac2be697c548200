"""What a path must be before it is opened."""

from __future__ import annotations

import stat
from pathlib import Path

from tunefleet.errors import InputError


def check_regular(path: Path, most_bytes: int | None = None) -> None:
    """Raises InputError for what would be waited for or has no end, a pipe or a device, and for
    what is longer than it can be. A file that is not there, or may not be seen, is left to whoever
    opens it."""
    try:
        status = path.stat()
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is no regular file", cure="copy it to one")
    if most_bytes is not None and status.st_size > most_bytes:
        raise InputError(
            f"{path} has {status.st_size >> 20:,} MiB, which such a file cannot have",
            cure="take the file that tunefleet wrote",
        )
