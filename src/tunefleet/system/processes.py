"""Processes as others see them: which one it is, whether it lives; the clock of the boot."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

#: States of `/proc/PID/stat` in which a process runs no more.
_ENDED = ("Z", "X", "x")
#: Positions after the name in `/proc/PID/stat`: the state, and when it started, in ticks.
_STATE, _STARTED = 0, 19


@functools.cache
def boot_id() -> str:
    """This boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def boot_seconds() -> float:
    """Seconds since the machine was booted, also those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_space() -> str:
    """Where a number means the same process: one boot, and one container (name space)."""
    return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"


def started_at(pid: int) -> int:
    """When a process of this space started, in ticks since the boot; 0 where that is hidden."""
    fields = _stat(pid)
    return 0 if fields is None else int(fields[_STARTED])


def has_ended(pid: int, started: int) -> bool:
    """Whether the process of this space that started then runs no more; False where that is
    hidden."""
    fields = _stat(pid)
    if fields is not None:
        return fields[_STATE] in _ENDED or int(fields[_STARTED]) != started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _stat(pid: int) -> list[str] | None:
    """What the system says of a process after its name, which may hold any character."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
