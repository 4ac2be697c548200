"""Calls on whole networks in a process of their own.

Importers and compilers are large C++ programs that read what strangers wrote. Where one crashes,
hangs or takes all memory, it ends its process and no other; Ctrl-C ends it at once; and what it
took of memory is given back when it is done. The process is in a sandbox before it reads the first
byte of a file.
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
from tunefleet.system.limits import NO_LIMITS, Limits
from tunefleet.system.progress import ProgressWatch, report_to
from tunefleet.system.sandbox import Sandbox, confine
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers.memory import gib, machine_memory, worker_bytes
from tunefleet.workers.pool import CallEnd, CallFailure, WorkerConfig, WorkerPool

T = TypeVar("T")

#: Seconds after which a step is given up: in all, and without progress. What is read and written
#: between two signs of progress adds to the latter, at the speed of a slow disk.
_TIMEOUT_S, _STILL_S = 3600.0, 300.0
_DISK_BYTES_PER_S = 20e6
#: What a step may take beyond the pages of its network's files: for each byte of these, for each
#: core (stacks and C's arenas of threads are address space), and in any case. On two cores imports
#: that compile took 0.8 GiB of address space for MobileNetV2, 1.6 GiB for BERT and for 768 MiB of
#: weights, 0.2 GiB for 20,000 operators.
_OF_NETWORK, _OF_CORE_BYTES, _BYTES = 4, 128 << 20, 8 << 30
#: Processes and threads (frameworks start some for each core), and files open at once.
_TASKS, _FILES = 4096, 4096
#: Of a file that is written, beyond those of the network.
_FILE_BYTES = 16 << 30
_LONGEST_LINE = 200
#: For a call that reads none.
NO_FILES = Sandbox()
#: What C++ says of an allocation that failed.
_OUT_OF_MEMORY = "std::bad_alloc"


def call_apart(
    what: str,
    function: Callable[..., T],
    *args: Any,
    cores: Collection[int] = (),
    network_bytes: int = 0,
    sandbox: Sandbox = NO_FILES,
    limits: Limits = NO_LIMITS,
) -> T:
    """Call a module-level function in a new worker, which ends with it; paths mean what they mean
    here. Raises its errors of this project's tree, JobError beginning with `what` where the worker
    died, met a limit, made no progress for five minutes or took more than an hour, and
    InternalError for any other error.

    The worker reaches what `sandbox` names, besides Python, libraries and a folder for temporary
    files. What it returns is made of values of this package (`workers._received`).

    The worker may take memory by `network_bytes`, never more than is free; what is free where they
    are 0, as for the zoo and for quantising. Its processes, open files and the length of what it
    writes are limited so that no file can take all the machine has. `limits` are its memory and its
    processor time, where these are to be others.
    """
    free = machine_memory().available
    most = limits.memory_bytes or (_most_bytes(network_bytes) if network_bytes else free)
    bound = min(free, most)
    limit = worker_bytes(bound, Footprint(network_bytes))
    with scratch_folder("apart") as folder:
        log, progress = Path(folder, "worker.log"), Path(folder, "progress")
        watch, patience_s = ProgressWatch(progress), _STILL_S + network_bytes / _DISK_BYTES_PER_S
        further = Limits(
            cpu_s=limits.cpu_s,
            tasks=_TASKS,
            files=_FILES,
            file_bytes=_FILE_BYTES + 4 * network_bytes,
        )
        # Not where the log is: what is read here it cannot replace by a link.
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        config = WorkerConfig(1, limit / 2**30, str(log), tuple(cores), further, confined=True)
        with WorkerPool(1, config) as pool:
            outcome: T | CallFailure = pool.call(
                _call,
                progress,
                os.getcwd(),
                (sandbox, scratch),
                function,
                args,
                timeout_s=_TIMEOUT_S,
                lives=1,
                given_up=lambda: _without_progress(watch, patience_s),
            )
        if isinstance(outcome, CallFailure):
            if _is_lack_of_memory(outcome, log):
                raise _out_of_memory(what, watch.work(), None if bound == free else bound)
            raise _failed(what, outcome, watch.work(), _last_line(log))
    return outcome


def _most_bytes(network_bytes: int) -> int:
    return _BYTES + (os.cpu_count() or 1) * _OF_CORE_BYTES + _OF_NETWORK * network_bytes


def _without_progress(watch: ProgressWatch, patience_s: float) -> str | None:
    return f"no progress in {patience_s:.0f} s" if watch.still_s() > patience_s else None


def _call(
    progress: Path,
    cwd: str,
    sandbox: tuple[Sandbox, Path],
    function: Callable[..., T],
    args: tuple[Any, ...],
) -> T:
    keep_output()
    report_to(progress)
    os.chdir(cwd)
    confine(*sandbox)
    try:
        return function(*args)
    except Exception as error:
        if _OUT_OF_MEMORY in str(error):
            raise MemoryError from error
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


def _is_lack_of_memory(failure: CallFailure, log: Path) -> bool:
    killed = failure.end is CallEnd.MEMORY or failure.text.endswith("SIGKILL")
    return killed or any(words in _said(log) for words in (_OUT_OF_MEMORY, "out of memory"))


def _out_of_memory(what: str, work: str, bound: int | None) -> JobError:
    """`bound`: what its network may take, None where that is all there is."""
    at = f" at {work}" if work else ""
    if bound is not None:
        return JobError(
            f"{what}: it needs more than {gib(bound)} of memory{at}, which no network of its size "
            "should",
            cure="leave out or replace what it stopped at, and report the network",
        )
    return JobError(
        f"{what}: it needs more memory than there is{at}",
        cure=f"{gib(machine_memory().available)} of memory are free: end what else uses it, or "
        "use a machine or a container with more",
    )


def _failed(what: str, failure: CallFailure, work: str, last: str) -> JobError:
    at, said = f" at {work}" if work else "", f" ({last})" if last else ""
    if failure.text.endswith("SIGXCPU"):
        failure = CallFailure(CallEnd.TIMEOUT, "it takes more processor time than it may")
    if failure.end is CallEnd.TIMEOUT:
        cure = "leave out or replace what it stopped at, and report the network"
    else:
        cure = "check the network with the framework that wrote it; if it runs there, report it"
    return JobError(f"{what}: {failure.text}{at}{said}", cure=cure)


def _said(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def _last_line(log: Path) -> str:
    """What the worker, or the C++ in it, said last."""
    lines = _said(log).strip().splitlines()
    return lines[-1].strip()[:_LONGEST_LINE] if lines else ""
