"""Waits for space on a full disk: nothing of a job is lost, and no candidate is blamed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tunefleet.core.events import Event, JobContinued, JobHeld
from tunefleet.errors import DiskFullError, SetupError
from tunefleet.workers.memory import gib

T = TypeVar("T")

#: A batch of programs and the commit of its stage need less. Of less than this compilers die in
#: ways that do not tell why.
_LEAST_BYTES = 64 << 20
#: Seconds between two looks.
_LOOK_S = 2.0


def lacking(folders: Sequence[Path]) -> str:
    """Which of the folders lie on a disk that is full, for the user to read, or ""."""
    for folder in folders:
        try:
            disk = os.statvfs(folder)
        except OSError:  # whoever needs it will say more
            continue
        free = disk.f_bavail * disk.f_frsize
        if free < _LEAST_BYTES:
            return (
                f"the disk of {folder} has {free >> 20} MiB free; free some space, it goes on then"
            )
    return ""


def check_space(name: str, folder: Path, size: int) -> None:
    """Raises SetupError where a network's modules, of `size` bytes in all, do not fit beside what
    is on a disk."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < size:
        raise SetupError(
            f"{name} needs {gib(size)} of disk in {folder}, {gib(free)} are free",
            cure="free some space, or name another place: TMPDIR",
        )


def with_space(
    step: Callable[[], T],
    folders: Sequence[Path],
    tell: Callable[[Event], None],
    check: Callable[[], None],
) -> T:
    """What `step` returns, once there is space for it: it is called again when it met a full disk.

    `tell` is told when the waiting begins and ends; `check` is called at every look and may raise
    what ends it.
    """
    held = False
    while True:
        reason = lacking(folders)
        if not reason:
            try:
                result = step()
            except DiskFullError as error:
                reason = str(error)
            else:
                if held:
                    tell(JobContinued())
                return result
        if not held:
            tell(JobHeld(reason))
            held = True
        check()
        time.sleep(_LOOK_S)
