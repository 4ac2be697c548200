"""Warm worker processes: time limits, crash isolation, replacement.

A worker that segfaults, hangs or exhausts its memory costs one call; the pool replaces it and the
run goes on. What became of a call is a value, not an exception, because a failed trial is data.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, TimeoutError
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from tunefleet.errors import TunefleetError
from tunefleet.fleet._spawn import worker_context

T = TypeVar("T")


class CallEnd(StrEnum):
    """How a call ended that returned no value."""

    TIMEOUT = "timeout"
    CRASH = "crash"
    MEMORY = "memory"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CallFailure:
    end: CallEnd
    text: str


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """`threads`: what kernels in the worker use; `cores`: where it may run (empty: anywhere)."""

    threads: int
    memory_gib: float
    log_path: str
    cores: tuple[int, ...] = ()


def _initialize(config: WorkerConfig) -> None:
    """Runs first in every worker."""
    _die_with_creator()
    # Ctrl-C is for the driver, which ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _write_to_log(config.log_path)
    if config.cores:
        os.sched_setaffinity(0, config.cores)
    limit = int(config.memory_gib * 2**30) + _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # XGBoost with more threads than free cores takes 10 times as long.
    os.environ["OMP_NUM_THREADS"] = "1"
    from tunefleet.compiler.toolchain import set_threads

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


def _address_space() -> int:
    """Bytes of address space in use: a warm TVM maps several GB that are not its own data."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


class WorkerPool:
    """`workers` processes that run module-level functions.

    Not for use by several threads at once. `close` (or leaving the `with` block) ends the
    processes; a pool also ends when its creator dies, however it dies.
    """

    def __init__(self, workers: int, config: WorkerConfig) -> None:
        self.workers = workers
        self.config = config
        self._pool = ProcessPool(
            max_workers=workers,
            initializer=_initialize,
            initargs=(config,),
            context=worker_context(),
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.stop()
        self._pool.join()

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_s: float | None = None
    ) -> ProcessFuture:
        return self._pool.schedule(function, args=args, timeout=timeout_s)

    def call(
        self, function: Callable[..., T], *args: Any, timeout_s: float | None = None
    ) -> T | CallFailure:
        """Run one call and wait; errors of this project's tree are raised as they are."""
        result: T | CallFailure = outcome(self.submit(function, *args, timeout_s=timeout_s))
        return result

    def map(
        self,
        function: Callable[..., T],
        arguments: Iterable[Sequence[Any]],
        timeout_s: float,
        done: Callable[[int], None] = lambda count: None,
    ) -> list[T | CallFailure]:
        """One call per item of `arguments`, results in their order; `timeout_s` is for each."""
        futures = [self.submit(function, *args, timeout_s=timeout_s) for args in arguments]
        results: list[T | CallFailure] = []
        try:
            for future in futures:
                results.append(outcome(future))
                done(len(results))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return results


def outcome(future: ProcessFuture) -> Any:
    """The value of a finished call, or how it failed."""
    try:
        return future.result()
    except TimeoutError as error:
        limit = error.args[1] if len(error.args) > 1 else "its limit"
        return CallFailure(CallEnd.TIMEOUT, f"stopped after {limit} s")
    except ProcessExpired as error:
        code = error.exitcode if isinstance(error.exitcode, int) else 0
        return CallFailure(CallEnd.CRASH, f"worker died: {_exit_text(code)}")
    except MemoryError:
        return CallFailure(CallEnd.MEMORY, "out of memory")
    except (TunefleetError, CancelledError):
        raise
    except Exception as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        end = CallEnd.MEMORY if "bad_alloc" in str(error) else CallEnd.ERROR
        return CallFailure(end, text[:300])


def _exit_text(code: int) -> str:
    """-11 and 139 both mean SIGSEGV."""
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit code {code}"


__all__ = ["CallEnd", "CallFailure", "WorkerConfig", "WorkerPool", "outcome"]
