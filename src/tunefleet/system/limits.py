"""What a process may take that reads strangers' files: set by itself, held by the kernel."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """None leaves a limit as it is.

    `memory_bytes`: address space beyond what the process has already. `cpu_s`: processor time,
    after which SIGXCPU ends it. `tasks`: processes and threads that this user may have beyond those
    there are; the kernel asks that of no superuser. `files`: open at once. `file_bytes`: the
    longest file that it may write.
    """

    memory_bytes: int | None = None
    cpu_s: int | None = None
    tasks: int | None = None
    files: int | None = None
    file_bytes: int | None = None


NO_LIMITS = Limits()


def limit_process(limits: Limits) -> None:
    """Set the limits for this process and all that it starts, for good."""
    memory, tasks = limits.memory_bytes, limits.tasks
    wanted = {
        # A warm TVM maps several GB that are not its own data.
        resource.RLIMIT_AS: None if memory is None else _address_space() + memory,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_NPROC: None if tasks is None else _tasks_of_user() + tasks,
        resource.RLIMIT_NOFILE: limits.files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
    }
    for kind, limit in wanted.items():
        if limit is not None:
            _, hard = resource.getrlimit(kind)
            most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            # A second later SIGKILL would follow the SIGXCPU, which says why.
            above = most + 1 if kind == resource.RLIMIT_CPU and most != hard else most
            resource.setrlimit(kind, (most, above))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    return pages * resource.getpagesize()


def _tasks_of_user() -> int:
    """Processes and threads of this user, as the kernel counts them."""
    user, count = os.getuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == user:
                count += len(os.listdir(process / "task"))
        except OSError:  # it ended meanwhile
            continue
    return count
