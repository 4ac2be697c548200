"""A fork server whose workers do not import the program's main module.

Everything a worker runs lies in tunefleet, so the user's script need not be imported again in
each worker, and needs no `if __name__ == "__main__":` to keep it from starting itself anew.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing import forkserver, popen_forkserver, resource_tracker, spawn
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from multiprocessing.process import current_process
from multiprocessing.util import Finalize
from typing import Any

from tunefleet.system.scratch import scratch_folder

#: Python's option -P, for a process whose command is not ours to write.
_SAFE_PATH = "PYTHONSAFEPATH"
#: The name of a socket in it takes the rest of what the kernel allows (108).
_LONGEST_FOLDER = 85
#: Threads that start workers change it in turn.
_environment = threading.RLock()

#: Modules that the fork server imports: an import takes seconds in each worker.
PRELOADED = ["tunefleet.stages._preload"]
#: Another one, where networks are PyTorch's.
TORCH = "tunefleet.stages._preload_torch"

_thread = threading.local()
_original = spawn.get_preparation_data


def _preparation_data(name: str) -> dict[str, Any]:
    """What Python tells a new process, less the main module where one of ours is started."""
    data = _original(name)
    if getattr(_thread, "starts_worker", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


# Nothing in multiprocessing takes this as a parameter. Other processes of the program, and other
# threads meanwhile, get what they always got.
spawn.get_preparation_data = _preparation_data


class _Process(ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        _thread.starts_worker = True
        try:
            _ensure_server()
            return popen_forkserver.Popen(process_obj)
        except KeyboardInterrupt:
            _end_server()
            raise
        finally:
            _thread.starts_worker = False


def start_server(*, torch: bool = False) -> None:
    """Start the fork server before the first worker is wanted: it loads the compiler, and PyTorch
    if asked, while this process does something else. Where it cannot be started, the first pool
    says so. One that runs stays as it is."""
    if torch and TORCH not in PRELOADED:
        PRELOADED.append(TORCH)
    worker_context()
    with suppress(OSError):
        _ensure_server()


def _ensure_server() -> None:
    with _held_back(signal.SIGINT), _safe_path():  # until `_preload` ignores it
        forkserver.ensure_running()


def _end_server() -> None:
    """End the fork server; the next worker gets a new one.

    It takes seconds to load the compiler. Where a worker is not waited for until then, nobody
    would know it: it would come to life after its pool, and complain of what is gone by then.
    """
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


class _Context(ForkServerContext):
    Process = _Process


@lru_cache(maxsize=1)
def worker_context() -> BaseContext:
    """The context all pools share: one fork server with the compiler loaded."""
    multiprocessing.set_forkserver_preload(PRELOADED)
    _put_socket_into_scratch()
    _start_tracker()
    return _Context()


def _put_socket_into_scratch() -> None:
    """The fork server listens in a temporary folder of multiprocessing's (`pymp-...`), which nobody
    removes where this process is killed: it becomes one that is swept."""
    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    if config.get("tempdir") is not None:  # the program has used it already
        return
    folder = scratch_folder("spawn")
    if len(folder.name) > _LONGEST_FOLDER:
        folder.cleanup()
        return
    # By multiprocessing, after all that it ends itself, and in this process only.
    Finalize(None, folder.cleanup, exitpriority=-100)
    config["tempdir"] = folder.name


def _start_tracker() -> None:
    """Start Python's tracker of semaphores so that it outlives a terminal, which sends SIGHUP to
    all processes as it is closed. It ignores other signals by itself, and complains for each
    semaphore that is released after its end."""
    with _held_back(signal.SIGHUP), _safe_path():
        resource_tracker.ensure_running()


@contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """Keeps a signal from processes that are started meanwhile: they inherit the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Keeps the folder that this process stands in from where Python looks for modules, in those
    that are started meanwhile: a `random.py` beside a downloaded network is not Python's."""
    with _environment:
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            yield
        finally:
            del os.environ[_SAFE_PATH]
            if before is not None:
                os.environ[_SAFE_PATH] = before
