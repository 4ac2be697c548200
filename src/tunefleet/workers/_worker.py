"""What runs in a worker before its first call and around each."""

from __future__ import annotations

import fcntl
import logging
import math
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.errors import judged
from tunefleet.system.limits import NO_LIMITS, Limits, limit_process

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`threads`: what kernels in the worker use; `memory_gib`: without a limit where it is
    infinite; `cores`: where it may run (empty: anywhere); `further`: what else it may not take
    without limit. `confined`: it enters a sandbox, and what it answers is not trusted."""

    threads: int
    memory_gib: float
    log_path: str
    cores: tuple[int, ...] = ()
    further: Limits = NO_LIMITS
    confined: bool = False


def guarded(function: Callable[..., T], *args: Any) -> T:
    """Runs in a worker: beyond it, an error has no traceback to judge it by."""
    if _unready is not None:
        raise _unready
    try:
        return function(*args)
    except Exception as error:
        raise judged(error) from error


#: What kept this process, a worker, from becoming ready: its first call raises it.
_unready: Exception | None = None


def initialize(config: WorkerConfig, registry: str) -> None:
    """Runs first in every worker."""
    global _unready
    try:
        _make_ready(config, registry)
    except Exception as error:
        if not Path(registry).exists():  # who made the pool has dropped it: nobody is to hear of it
            logging.disable()
            raise
        Path(registry, str(os.getpid())).touch()
        _unready = judged(error)


def _make_ready(config: WorkerConfig, registry: str) -> None:
    _die_with_creator()
    Path(registry, str(os.getpid())).touch()
    # Locks that libraries make here (tqdm's) then have no name that outlives a killed worker.
    multiprocessing.set_start_method("fork", force=True)
    # Ctrl-C is for the driver, which ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _write_to_log(config.log_path)
    if config.cores:
        os.sched_setaffinity(0, config.cores)
    memory = None if math.isinf(config.memory_gib) else int(config.memory_gib * 2**30)
    limit_process(replace(config.further, memory_bytes=memory))
    # XGBoost with more threads than free cores takes 10 times as long.
    os.environ["OMP_NUM_THREADS"] = "1"
    # PyTorch makes a folder of its own where programs are exported: it goes with the pool's log.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(config.log_path).with_name("inductor"))
    from tunefleet.artifacts.runtime import set_threads

    set_threads(config.threads)


def _die_with_creator() -> None:
    """Let the kernel end this process when the one that made the pool ends, however it does.

    Python gives each worker a pipe whose other end only its creator holds; when it closes, the
    kernel sends SIGIO, whose default action is to terminate. A watching thread would not do: a
    kernel that hangs may hold the interpreter lock. (The fork server is no sign of life: it lives
    as long as any of its workers does.)
    """
    creator = multiprocessing.parent_process()
    if creator is None:
        return
    sentinel = creator.sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(sentinel, fcntl.F_GETFL)
    fcntl.fcntl(sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not creator.is_alive():  # it may have died before this
        os.kill(os.getpid(), signal.SIGKILL)


def _write_to_log(path: str) -> None:
    """TVM and LLVM write to file descriptor 2: keep that, away from the user's terminal."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
