"""The executors of the package do what every executor does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunefleet.core.hosts import HostIdentity
from tunefleet.fleet.executor import LocalExecutor
from tunefleet.fleet.leases import Leases
from tunefleet.fleet.remote import RemoteHosts
from tunefleet.scheduler.values import Resource, Role
from tunefleet.store import open_store
from tunefleet.testing.executor_conformance import (
    Bench,
    ExecutorConformance,
    GatedRunner,
    unheard,
    until,
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


class RemoteBench(Bench):
    """The stages run in a process that has no more than the address of the store, and the gate."""

    heard_s = 1.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._url = f"sqlite:///{folder / 'store.sqlite'}"
        self._open()
        self._start()
        self._look_for_hosts()

    def _look_for_hosts(self) -> None:
        for executor in self._hosts.newcomers():
            self.executor = executor

    def _open(self) -> None:
        self.store = open_store(self._url)
        self.leases = Leases(self.store.coordination)
        self._hosts = RemoteHosts(self.store, self.leases, self.report, lost_s=1.5)

    def _start(self) -> None:
        before = self._identities()
        command = [sys.executable, "-m", "tests.fleet.gated_host"]
        self._process = subprocess.Popen(
            [*command, self._url, str(self._folder), "b", "other/core 0"]
        )
        until(lambda: self._identities() not in ([], before))

    def _identities(self) -> list[HostIdentity]:
        return [host.identity for host in self.store.dispatch.hosts()]

    def lose(self) -> None:
        self._process.kill()
        self._process.wait()

    def rejoin(self) -> None:
        self._start()
        self._look_for_hosts()

    def reopen(self) -> None:
        self._close_store()
        self._open()
        self._look_for_hosts()

    def _close_store(self) -> None:
        self._hosts.close()
        self.leases.close()
        self.store.close()

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(10)
        self._close_store()


class TestRemoteExecutor(ExecutorConformance):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], Bench]:
        return lambda: RemoteBench(tmp_path)
