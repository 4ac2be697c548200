"""What a path must be before it is opened."""

from __future__ import annotations

import stat
from pathlib import Path

from tunefleet.errors import InputError


def check_regular(path: Path) -> None:
    """Raises InputError for what would be waited for or has no end: a pipe, a device. A file that
    is not there, or may not be seen, is left to whoever opens it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is no regular file", cure="copy it to one")
