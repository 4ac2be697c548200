"""Devices behind TVM's own server, which these tests start in processes of its own."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.devices import servers
from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.trial import Failure, FailureKind, Measurement
from tunefleet.devices import asking, call_limit_s
from tunefleet.devices.health import (
    DeviceState,
    check_all_there,
    check_any_there,
    health_of,
    healths_of,
)
from tunefleet.errors import InputError, RetryElsewhereError
from tunefleet.stages import work
from tunefleet.testing import programs
from tunefleet.testing.device_conformance import SETTINGS, DeviceConformance

pytestmark = pytest.mark.tvm


class TestRpcServer(DeviceConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[servers.Server]:
        with servers.served() as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls, server: servers.Server) -> DeviceSpec:
        return DeviceSpec(rpc=RpcAddress("127.0.0.1", server.port))

    @staticmethod
    def limit_s(settings: MeasureSettings) -> float:
        return call_limit_s(DeviceSpec(rpc=RpcAddress("there", 1)), settings.timeout_s)

    def test_another_session_is_told(
        self, server: servers.Server, spec: DeviceSpec, call: Callable[..., Any]
    ) -> None:
        from tunefleet.devices.rpc import RpcDevice

        call(work.describe_device)  # the worker's session
        assert health_of(spec).state is DeviceState.BUSY
        second = RpcDevice(RpcAddress("127.0.0.1", server.port), 1, patience_s=0.5)
        with pytest.raises(RetryElsewhereError, match="another session has it"):
            second.describe()

    def test_asking_for_its_health_does_a_server_no_harm(
        self, spec: DeviceSpec, call: Callable[..., Any], folder: Path
    ) -> None:
        call(work.reset_device)
        for _ in range(3):
            servers.until(lambda: health_of(spec).state is DeviceState.FREE, 10)
        self._still_works(call, folder)

    def test_a_server_that_is_started_again_is_found(
        self, server: servers.Server, call: Callable[..., Any], folder: Path
    ) -> None:
        self._still_works(call, folder)
        server.kill()

        def later() -> None:
            time.sleep(1)
            server.start()

        again = threading.Thread(target=later)
        again.start()
        try:
            self._still_works(call, folder)
        finally:
            again.join()


def test_a_server_that_is_gone_is_told() -> None:
    from tunefleet.devices.rpc import RpcDevice

    address = RpcAddress("127.0.0.1", servers.free_port())
    assert health_of(DeviceSpec(rpc=address)).detail == "connection refused"
    gone = RpcDevice(address, 1, patience_s=0.5)
    with pytest.raises(RetryElsewhereError, match="is not there: connection refused; start it"):
        gone.describe()


def test_a_server_that_stops_answering_is_not_the_programs_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.devices import rpc_session
    from tunefleet.devices.rpc import RpcDevice

    monkeypatch.setattr(rpc_session, "_ANSWER_S", 2.0)
    with servers.served() as server:
        device = RpcDevice(RpcAddress("127.0.0.1", server.port), 1, patience_s=2)
        built = programs.matmul(tmp_path)
        assert isinstance(device.measure(built, SETTINGS, None), Measurement)
        assert device.transfers.bytes > 0
        server.signal(signal.SIGSTOP)
        with pytest.raises(RetryElsewhereError, match="stopped answering"):
            device.measure(built, SETTINGS, None)


@pytest.fixture(scope="module")
def lab() -> Iterator[DeviceSpec]:
    """Two servers of one key behind a tracker."""
    with contextlib.ExitStack() as stack:
        tracker = stack.enter_context(servers.served(what="rpc_tracker"))
        spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", tracker.port, "board", tracker=True))
        for _ in range(2):
            place = f"127.0.0.1:{tracker.port}"
            stack.enter_context(servers.served("--tracker", place, "--key", "board"))
        servers.until(lambda: health_of(spec).free == 2, 20)
        yield spec


@pytest.fixture
def opened(lab: DeviceSpec) -> Iterator[Callable[..., Any]]:
    """Opens devices behind the tracker, which are closed when the test ends."""
    from tunefleet.devices.rpc import RpcDevice

    with contextlib.ExitStack() as stack:

        def open_one(**given: Any) -> Any:
            assert lab.rpc is not None
            device = RpcDevice(lab.rpc, 1, **given)
            stack.callback(device.close)
            return device

        yield open_one
    servers.until(lambda: health_of(lab).free == 2, 20)


def test_a_network_takes_inputs_where_those_before_them_were(
    opened: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.devices.rpc_session import RpcSession

    path, (data,) = programs.network(tmp_path)
    device, here = opened(), LoadedNetwork(path)
    there = device.network(path, "main")
    outputs = [there.run([data])]
    with monkeypatch.context() as patched:
        patched.setattr(RpcSession, "send", None)
        outputs += [there.run([-data]), there.run([data])]
    device.reset()  # gives the server back
    for given, numbers in zip(outputs, (data, -data, data), strict=True):
        for ours, theirs in zip(given, here.run([numbers]), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_program_that_crashes_is_told_by_the_server_that_ran_it(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    device = opened()
    before = device._open().server
    # The tracker would lend the other one: it has been free for longer.
    outcome = device.measure(programs.crashing(tmp_path), SETTINGS, None)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.text) == (FailureKind.RUN_CRASH, "session died: SIGSEGV")
    after = device._open().server
    assert (before.host, before.port) == (after.host, after.port)
    assert isinstance(device.measure(programs.matmul(tmp_path), SETTINGS, None), Measurement)


def test_sessions_of_a_tracker_are_on_different_servers_until_none_is_free(
    opened: Callable[..., Any],
) -> None:
    first, second = opened(), opened()
    assert first._open().server.port != second._open().server.port
    third = opened(patience_s=0.3)
    with pytest.raises(RetryElsewhereError, match="lends no server: none is free"):
        third.describe()
    # What was asked in vain takes nothing: the next server that is free is the next one's who asks.
    second.close()
    assert third.describe().identity == first.describe().identity


def test_a_server_of_another_kind_than_was_named_is_not_used(
    lab: DeviceSpec, opened: Callable[..., Any], tmp_path: Path
) -> None:
    identity = opened().describe().identity
    alike = opened(identity=identity)
    assert isinstance(alike.measure(programs.matmul(tmp_path), SETTINGS, None), Measurement)
    alike.close()
    other = opened(identity=replace(identity, memory_gib=1 + identity.memory_gib))
    with pytest.raises(RetryElsewhereError, match="is another device than was named"):
        other.measure(programs.matmul(tmp_path), SETTINGS, None)
    # It holds nothing that others could use.
    servers.until(lambda: health_of(lab).free == 1, 20)


def test_all_servers_of_a_tracker_are_asked_what_they_are(
    lab: DeviceSpec, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that lost its tracker for a moment is away: those that are free are asked.
    asked: list[asking.Asked] = []

    def both() -> bool:
        asked.append(asking.ask(lab))
        return asked[-1].asked == 2

    servers.until(both, 60)
    found = asked[-1]
    assert found.servers == 2
    servers.until(lambda: health_of(lab).free == 2, 20)
    held = opened()
    assert held.describe() == found.description
    assert asking.ask(lab) == replace(found, asked=1)
    held.close()
    servers.until(lambda: health_of(lab).free == 2, 20)
    kinds = itertools.count()

    def unlike(*given: Any, **named: Any) -> Any:
        identity = replace(found.description.identity, memory_gib=next(kinds))
        description = replace(found.description, identity=identity)
        return SimpleNamespace(describe=lambda: description, close=lambda: None)

    monkeypatch.setattr(asking, "open_device", unlike)
    with pytest.raises(InputError, match="lends servers that are not alike: "):
        asking.ask(lab)


def test_the_health_of_a_tracker_is_that_of_its_servers(
    lab: DeviceSpec, opened: Callable[..., Any]
) -> None:
    assert lab.rpc is not None
    nobody = DeviceSpec(rpc=replace(lab.rpc, key="nobody"))
    assert "no server of the key nobody" in health_of(nobody).detail
    counts = [health.servers for health in healths_of([lab, nobody])]
    assert counts == [2, 0]
    with pytest.raises(RetryElsewhereError, match=r"lends nothing: .*; start one: .* --key nobody"):
        check_all_there([lab, nobody])
    assert counts == [health.servers for health in check_any_there([lab, nobody])]
    devices = [opened(), opened()]
    for device, free in zip(devices, (1, 0), strict=True):
        device.describe()
        servers.until(lambda: health_of(lab).free == free, 5)  # noqa: B023
    assert health_of(lab).state is DeviceState.BUSY
    devices[0].close()
    servers.until(lambda: health_of(lab).state is DeviceState.FREE, 20)


@pytest.mark.parametrize(
    "answer",
    [
        b"[" * 100_000,
        b'[0, {"server_info": [], "queue_info": {"board": {"free": 1e400, "pending": 0}}}]',
        b'[0, {"server_info": [], "queue_info": {"board": {"free": -1, "pending": 0}}}]',
        [0, {"server_info": [], "queue_info": {"board": {"free": 10**300, "pending": 0}}}],
        [0, {"server_info": [{"key": "server:board"}] * 5000, "queue_info": {}}],
        [0, {"server_info": [5], "queue_info": []}],
        [0, {"server_info": None}],
        [0, ["server_info"]],
        [0],
        5,
        {"a": 1},
        b"\xff\xfe",
    ],
)
def test_what_no_tracker_says_is_told_as_that(answer: Any) -> None:
    from tunefleet.devices import tracker

    with servers.answering(servers.tracking(answer)) as port:
        address = RpcAddress("127.0.0.1", port, "board", tracker=True)
        health = health_of(DeviceSpec(rpc=address))
        with pytest.raises(ValueError, match=r"."):
            tracker.lent(address, 1.0)
    assert health.state is DeviceState.UNREACHABLE


def test_a_tracker_that_answers_byte_by_byte_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tunefleet.devices import health

    monkeypatch.setattr(health, "_ANSWER_S", 0.5)

    def slowly(connection: Any) -> None:
        connection.sendall(connection.recv(4))
        connection.sendall((1000).to_bytes(4, "little"))
        for _ in range(100):
            connection.sendall(b" ")
            time.sleep(0.1)

    with servers.answering(slowly) as port:
        spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", port, "board", tracker=True))
        started = time.monotonic()
        assert health_of(spec).state is DeviceState.BUSY
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_babbles_ends_no_command(seed: int, tmp_path: Path) -> None:
    with servers.answering(servers.babbling(seed)) as port:
        command = [sys.executable, "-m", "tunefleet", "device", "add", f"rpc://127.0.0.1:{port}"]
        done = subprocess.run(
            [*command, "--home", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert f"rpc://127.0.0.1:{port}" in done.stderr


def test_a_server_that_babbles_is_not_the_programs_fault(tmp_path: Path) -> None:
    from tunefleet.stages.place import DeviceWorker
    from tunefleet.workers.pool import WorkerConfig, WorkerPool

    built = programs.matmul(tmp_path)
    config = WorkerConfig(1, 8.0, str(tmp_path / "log"))
    with servers.answering(servers.babbling(0)) as port, WorkerPool(1, config) as pool:
        worker = DeviceWorker(pool, 1, DeviceSpec(rpc=RpcAddress("127.0.0.1", port)), 1.0)
        with pytest.raises(RetryElsewhereError):
            worker.call(work.profile_candidate, built, SETTINGS, None, timeout_s=5)
