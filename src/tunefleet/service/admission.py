"""Checks of uploads: a few at once, in threads of their own, while no measurement runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tunefleet.core.events import Event
from tunefleet.core.home import Home
from tunefleet.core.ids import digest
from tunefleet.core.importing import ImportOptions, NetworkSource
from tunefleet.errors import DiskFullError, RetryElsewhereError, SetupError
from tunefleet.fleet.leases import Leases, machine_units
from tunefleet.runs.context import BenchmarkContext
from tunefleet.service.problems import Refused
from tunefleet.store import Store

T = TypeVar("T")

#: Concurrent checks of all users, and running or waiting ones of one user.
_AT_ONCE, _MOST_OF_USER = 2, 4


class Admission:
    """Runs checks, each while nothing is measured on this machine's own cores. For one event
    loop, which a check does not block."""

    def __init__(self, home: Path, store: Store) -> None:
        self._context = BenchmarkContext(home=home)
        self._leases = Leases(store.coordination)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tunefleet-admission")
        self._running: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._closed = threading.Event()

    async def checked(self, user: str, what: str, check: Callable[[], T]) -> T:
        """The result of `check`, or the error it raises. Concurrent calls with the same `what`
        share one check. Raises Refused where a user has too many of them."""
        key = (user, what)
        if key not in self._running:
            if sum(of == user for of, _ in self._running) >= _MOST_OF_USER:
                raise Refused(
                    429,
                    f"{_MOST_OF_USER} of your files are being checked",
                    cure="send it again a moment later",
                    headers={"Retry-After": "2"},
                )
            self._running[key] = asyncio.create_task(self._in_thread(check))
            self._running[key].add_done_callback(lambda task: self._ended(key, task))
        # The request may be cancelled; the check continues.
        answer: T = await asyncio.shield(self._running[key])
        return answer

    async def _in_thread(self, check: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._threads.submit(self._beside_jobs, check))

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved, also where no request waits for it any more

    def close(self) -> None:
        """Start no more checks."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._leases.close()

    def _beside_jobs(self, check: Callable[[], T]) -> T:
        units = machine_units(self._context.likely_layout.host_units)
        claim = self._leases.claim(units, shared=True, purpose="check of a file that was sent")
        try:
            self._leases.acquire(claim, _unheard, self._goes_on)
            return check()
        except DiskFullError:
            raise
        except SetupError as error:  # a package of a format
            raise Refused(415, error.what, cure=f"ask the operator for it: {error.cure}") from error
        finally:
            self._leases.release(claim)

    def _goes_on(self) -> None:
        if self._closed.is_set():
            raise RetryElsewhereError("the service ends", cure="send it again when it is there")


class CheckedImports:
    """The import options with which checks imported the networks of a user, kept in files.
    Thread-safe."""

    def __init__(self, home: Path, user: str) -> None:
        self._folder = user_folder(home, user)

    def keep(self, network: str, options: ImportOptions) -> None:
        """Record that a network, given by its digest, can be imported with these options."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._file(network).open("a", encoding="utf-8") as file:
            file.write(f"{_key(options)}\n")

    def has(self, network: str, options: ImportOptions) -> bool:
        """Whether that is recorded."""
        file = self._file(network)
        return file.exists() and _key(options) in file.read_text(encoding="utf-8").split()

    def _file(self, network: str) -> Path:
        return self._folder / f"{network}.checked"


def _key(options: ImportOptions) -> str:
    return NetworkSource("", "", "", options).identity


def user_folder(home: Path, user: str) -> Path:
    """The folder of a user's unfinished uploads and records of checks."""
    return Home(home).uploads / digest(["uploads", user])


def _unheard(event: Event) -> None:
    """The response shows that a check had to wait."""
