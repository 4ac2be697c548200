"""Calls on whole networks in a process of their own.

Importers and compilers are large C++ programs that read what strangers wrote. Where one crashes,
hangs or takes all memory, it ends its process and no other; Ctrl-C ends it at once; and what it
took of memory is given back when it is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.compiler.toolchain.quiet import keep_output
from tunefleet.core.network import Footprint
from tunefleet.errors import (
    JobError,
    TunefleetError,
    internal,
    is_mistake,
    judged,
    machine_error,
)
from tunefleet.system.limits import Limits
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers.memory import gib, machine_memory, worker_bytes
from tunefleet.workers.pool import CallEnd, CallFailure, WorkerConfig, WorkerPool

T = TypeVar("T")

#: Seconds after which a step is given up.
_TIMEOUT_S = 3600.0
#: Processes and threads (frameworks start some for each core), and files open at once.
_TASKS, _FILES = 4096, 4096
#: Of a file that is written, beyond those of the network.
_FILE_BYTES = 16 << 30
_LONGEST_LINE = 200


def call_apart(
    what: str,
    function: Callable[..., T],
    *args: Any,
    cores: Collection[int] = (),
    network_bytes: int = 0,
) -> T:
    """Call a module-level function in a new worker, which ends with it; paths mean what they mean
    here. Raises its errors of this project's tree, JobError beginning with `what` where the worker
    died, met a limit or took more than an hour, and InternalError for any other error.

    The worker may take what memory is free, and map files of `network_bytes`. Its processes, open
    files and the length of what it writes are limited so that no file can take all the machine has.
    """
    limit = worker_bytes(machine_memory().available, Footprint(network_bytes))
    with scratch_folder("apart") as folder:
        log = Path(folder, "worker.log")
        further = Limits(tasks=_TASKS, files=_FILES, file_bytes=_FILE_BYTES + 4 * network_bytes)
        config = WorkerConfig(1, limit / 2**30, str(log), tuple(cores), further)
        with WorkerPool(1, config) as pool:
            outcome: T | CallFailure = pool.call(
                _call, os.getcwd(), function, args, timeout_s=_TIMEOUT_S, lives=1
            )
        if isinstance(outcome, CallFailure):
            raise _failed(what, outcome, _last_line(log))
    return outcome


def _call(cwd: str, function: Callable[..., T], args: tuple[Any, ...]) -> T:
    keep_output()
    os.chdir(cwd)
    try:
        return function(*args)
    except Exception as error:
        theirs = judged(error)
        if isinstance(theirs, (TunefleetError, MemoryError)):
            raise theirs from error
        if isinstance(error, OSError) and not is_mistake(error):
            raise machine_error(error) from error
        # Nobody expected it of a library either.
        if _is_refusal_of_tvm(error):
            said = str(error).strip().splitlines()[-1][:_LONGEST_LINE]
            raise JobError(f"TVM cannot compile it: {said}", cure="report it") from error
        raise internal(error) from error


def _is_refusal_of_tvm(error: Exception) -> bool:
    """A check in TVM's C++ that failed, of the many that mean: nobody thought of such a network."""
    kind = type(error)
    return kind.__name__ == "InternalError" and "Check failed" in str(error)


def _failed(what: str, failure: CallFailure, last: str) -> JobError:
    if failure.end is CallEnd.MEMORY or failure.text.endswith("SIGKILL"):
        return JobError(
            f"{what}: it needs more memory than there is",
            cure=f"{gib(machine_memory().available)} of memory are free: end what else uses it, or "
            "use a machine or a container with more",
        )
    said = f" ({last})" if last else ""
    return JobError(
        f"{what}: {failure.text}{said}",
        cure="check the network with the framework that wrote it; if it runs there, report it",
    )


def _last_line(log: Path) -> str:
    """What the worker, or the C++ in it, said last."""
    lines = (
        log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if log.is_file()
        else []
    )
    return lines[-1].strip()[:_LONGEST_LINE] if lines else ""
