"""Warm worker processes: time limits, crash isolation, replacement.

A worker that segfaults, hangs or exhausts its memory costs one call; the pool replaces it and the
run goes on. What became of a call is a value, not an exception, because a failed trial is data.
A worker may also die of something else, so a call is poison only when it has killed three.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, TimeoutError, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pebble import ProcessExpired, ProcessFuture

from tunefleet.errors import (
    ForeignError,
    InternalError,
    SetupError,
    TunefleetError,
    internal,
)
from tunefleet.system.scratch import scratch_folder
from tunefleet.workers._spawn import start_server, worker_context
from tunefleet.workers._steady import SteadyPool
from tunefleet.workers._worker import WorkerConfig, guarded, initialize

T = TypeVar("T")

#: What Linux says where semaphores have no place, or may not be made there.
_NO_SEMAPHORE = (errno.EROFS, errno.ENOENT, errno.EACCES, errno.ENOSYS)

#: Files that a pool has open: pipes, logs and libraries.
_LEAST_FILES = 48
#: Workers that a call may cost before it is taken for the cause.
_LIVES = 3

#: Seconds after which a pool is asked whether it still works.
_LOOK_S = 1.0

_thread = threading.local()


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


_ALL_DIED = CallFailure(CallEnd.CRASH, "every worker died")


class CallScope:
    """The calls that a thread makes within the `with` block, to be given up together.

    `cancel` may be called by another thread. The calls then raise CancelledError, at once, and so
    does every further one; the workers end later (`WorkerPool.restart` waits for it).
    """

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._futures: set[ProcessFuture] = set()

    def __enter__(self) -> CallScope:
        _thread.scope = self
        return self

    def __exit__(self, *exc: object) -> None:
        _thread.scope = None

    def add(self, future: ProcessFuture) -> None:
        with self._lock:
            self._futures = {each for each in self._futures if not each.done()} | {future}
        if self.cancelled:
            future.cancel()

    def cancel(self) -> None:
        self.cancelled = True
        with self._lock:
            futures = list(self._futures)
        for future in futures:
            future.cancel()


class WorkerPool:
    """`workers` processes that run module-level functions.

    Not for use by several threads at once, but for `stopped`, `restart` and `close`. `close` (or
    leaving the `with` block) ends the processes, and what is submitted afterwards raises
    CancelledError; a pool also ends when its creator dies, however it dies.
    """

    def __init__(self, workers: int, config: WorkerConfig) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files < _LEAST_FILES:
            raise SetupError(
                f"a process may open {files} files here, a pool of workers needs {_LEAST_FILES}",
                cure="raise the limit: ulimit -n 1024",
            )
        self.workers = workers
        self.config = config
        #: Holds an empty file per worker, named by its process id.
        self._registry = scratch_folder("workers")
        self._ending = threading.RLock()
        self._closed = False
        self._pool = self._new_pool()
        self._pool_of: WeakKeyDictionary[ProcessFuture, SteadyPool] = WeakKeyDictionary()

    def _new_pool(self) -> SteadyPool:
        return SteadyPool(
            max_workers=self.workers,
            initializer=initialize,
            initargs=(self.config, self._registry.name),
            context=worker_context(),
            confined=self.config.confined,
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with self._ending:
            if not self._closed:
                self._closed = True
                self._end()
                self._registry.cleanup()

    def restart(self) -> None:
        """End every worker now, whatever it does; returns when all are gone."""
        with self._ending:
            if not self._closed:
                self._end()
                self._pool = self._new_pool()

    def warm_up(self) -> None:
        """Start every worker now."""
        for _ in range(self.workers):
            self.submit(os.getpid)

    def fit(self, threads: int, memory_gib: float | None = None) -> None:
        """Let workers use so many threads and take so much memory (None: as much as before): fresh
        ones, unless they do already."""
        memory_gib = self.config.memory_gib if memory_gib is None else memory_gib
        config = replace(self.config, threads=threads, memory_gib=memory_gib)
        if config != self.config:
            self.config = config
            self.restart()

    def stopped(self) -> list[int]:
        """Process ids of workers that something has stopped (SIGSTOP, a debugger)."""
        return [pid for pid in self._pids() if _process_state(pid) in ("T", "t")]

    def submit(
        self, function: Callable[..., T], *args: Any, timeout_s: float | None = None
    ) -> ProcessFuture:
        try:
            future = self._scheduled(function, args, timeout_s)
        except RuntimeError:  # pebble gives a pool up when a worker dies while none works
            self.restart()
            if self._closed:  # by another thread
                raise CancelledError from None
            try:
                future = self._scheduled(function, args, timeout_s)
            except BrokenProcessPool as error:
                raise SetupError(
                    f"no worker process can be started: {error.__cause__ or error}",
                    cure="raise the limits of this shell (ulimit -a), or end other processes",
                ) from error
        self._pool_of[future] = self._pool
        scope: CallScope | None = getattr(_thread, "scope", None)
        if scope is not None:
            scope.add(future)
        return future

    def _scheduled(
        self, function: Callable[..., T], args: Sequence[Any], timeout_s: float | None
    ) -> ProcessFuture:
        try:
            return self._pool.schedule(guarded, args=(function, *args), timeout=timeout_s)
        except OSError as error:
            if error.errno not in _NO_SEMAPHORE:
                raise
            raise SetupError(
                f"no worker process can be started: no semaphore can be made in /dev/shm: "
                f"{error.strerror}",
                cure="let /dev/shm be there and be written to",
            ) from error

    def call(
        self,
        function: Callable[..., T],
        *args: Any,
        timeout_s: float | None = None,
        lives: int = _LIVES,
        given_up: Callable[[], str | None] = lambda: None,
    ) -> T | CallFailure:
        """Run one call and wait; errors of this project's tree are raised as they are. It is poison
        when it has cost so many workers their `lives`. `given_up` is asked every second: with a
        reason the call is ended."""
        future = self.submit(function, *args, timeout_s=timeout_s)
        first: T | CallFailure = self._outcome(future, given_up)
        return self._unless_poison(first, function, args, timeout_s, lives)

    def _unless_poison(
        self,
        result: T | CallFailure,
        function: Callable[..., T],
        args: Sequence[Any],
        timeout_s: float | None,
        lives: int = _LIVES,
    ) -> T | CallFailure:
        """Repeat a call whose worker died, until it has cost as many as it may."""
        for _ in range(1, lives):
            if not isinstance(result, CallFailure) or result.end is not CallEnd.CRASH:
                return result
            result = self._outcome(self.submit(function, *args, timeout_s=timeout_s))
        if result == _ALL_DIED:
            self._check_ready()
        return result

    def _check_ready(self) -> None:
        """Where no worker got as far as to enter itself, no call is to blame for that."""
        with self._ending:
            if self._closed:
                raise CancelledError
            if not os.listdir(self._registry.name):
                raise InternalError("workers end before they are ready")

    def map(
        self,
        function: Callable[..., T],
        arguments: Iterable[Sequence[Any]],
        timeout_s: float,
        done: Callable[[int], None] = lambda count: None,
    ) -> list[T | CallFailure]:
        """One call per item of `arguments`, results in their order; `timeout_s` is for each."""
        calls = list(arguments)
        futures = [self.submit(function, *args, timeout_s=timeout_s) for args in calls]
        results: list[T | CallFailure] = []
        try:
            for future in futures:
                results.append(self._outcome(future))
                done(len(results))
            return [
                self._unless_poison(result, function, args, timeout_s)
                for result, args in zip(results, calls, strict=True)
            ]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _outcome(
        self, future: ProcessFuture, given_up: Callable[[], str | None] = lambda: None
    ) -> Any:
        """`outcome`, also of a call that no worker was sent.

        A pool that pebble gives up ends the calls it has sent and forgets those that still wait:
        they would never end.
        """
        works = True
        while not wait([future], timeout=_LOOK_S).done:
            if not works:
                return _ALL_DIED
            if self._pool_of[future].lost():
                raise InternalError("a thread of a pool of workers has ended")
            reason = given_up()
            if reason is not None and not future.done():
                future.cancel()
                return CallFailure(CallEnd.TIMEOUT, reason)
            # Looked at once more: it may be ending this very call.
            works = self._pool_of[future].active
        return outcome(future)

    def _end(self) -> None:
        own = self._pids()
        for process in multiprocessing.active_children():
            if process.pid in own:
                process.kill()
        self._pool.stop()
        self._pool.join()
        for file in Path(self._registry.name).iterdir():
            file.unlink(missing_ok=True)

    def _pids(self) -> set[int]:
        """Of the workers that live."""
        pids = {int(name) for name in os.listdir(self._registry.name)}
        return {pid for pid in pids if _process_state(pid) not in ("", "Z")}


def _process_state(pid: int) -> str:
    """The letter of `man proc_pid_stat`, or "" when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


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
    except BrokenProcessPool:
        return _ALL_DIED
    except MemoryError:
        return CallFailure(CallEnd.MEMORY, "out of memory")
    except ForeignError as error:
        return CallFailure(CallEnd.ERROR, str(error)[:300])
    except (TunefleetError, CancelledError):
        raise
    except Exception as error:  # what cannot travel between processes, say
        raise internal(error) from error


def _exit_text(code: int) -> str:
    """-11 and 139 both mean SIGSEGV."""
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"exit code {code}"


__all__ = [
    "CallEnd",
    "CallFailure",
    "CallScope",
    "WorkerConfig",
    "WorkerPool",
    "outcome",
    "start_server",
]
