"""The executors of the package do what every executor does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunefleet.fleet.executor import LocalExecutor
from tunefleet.fleet.leases import Leases
from tunefleet.scheduler.values import Resource, Role
from tunefleet.store import open_store
from tunefleet.testing.executor_conformance import (
    Bench,
    ExecutorConformance,
    GatedRunner,
    unheard,
)

pytestmark = pytest.mark.tvm

HOST = Resource("host", Role.HOST, "host", frozenset({"core 0"}))


class _Workers:
    """As a pool whose workers someone may stop."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def stopped(self) -> list[int]:
        return self.pids

    def restart(self) -> None:
        pass


class LocalBench(Bench):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._home = folder / "home"
        self._workers: Any = _Workers()
        self._open()

    def _open(self) -> None:
        self.store = open_store(self._home)
        self.leases = Leases(self.store.coordination)
        runner: Any = GatedRunner(self.gate)
        self.executor = LocalExecutor(
            HOST, [self._workers], runner, self.store, self.leases, self.report, unheard
        )

    def lose(self) -> None:
        self._workers.pids = [1]

    def rejoin(self) -> None:
        self._workers.pids = []

    def reopen(self) -> None:
        self.leases.close()
        self.store.close()
        self._open()

    def close(self) -> None:
        self.leases.close()
        self.store.close()


class TestLocalExecutor(ExecutorConformance):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], Bench]:
        return lambda: LocalBench(tmp_path)
