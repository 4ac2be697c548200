"""Devices behind TVM's own server, which these tests start in processes of its own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.devices import programs
from tests.devices.conformance import SETTINGS, DeviceConformance
from tunefleet.core.device import DeviceSpec, RpcAddress
from tunefleet.core.settings import MeasureSettings
from tunefleet.core.trial import Measurement
from tunefleet.devices import call_limit_s
from tunefleet.devices.health import DeviceState, health_of
from tunefleet.errors import RetryElsewhereError
from tunefleet.stages import work

pytestmark = pytest.mark.tvm


class TestRpcServer(DeviceConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[programs.Server]:
        with programs.served() as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls, server: programs.Server) -> DeviceSpec:
        return DeviceSpec(rpc=RpcAddress("127.0.0.1", server.port))

    @staticmethod
    def limit_s(settings: MeasureSettings) -> float:
        return call_limit_s(DeviceSpec(rpc=RpcAddress("there", 1)), settings.timeout_s)

    def test_another_session_is_told(
        self, server: programs.Server, spec: DeviceSpec, call: Callable[..., Any]
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
            programs.until(lambda: health_of(spec).state is DeviceState.FREE, 10)
        self._still_works(call, folder)

    def test_a_server_that_is_started_again_is_found(
        self, server: programs.Server, call: Callable[..., Any], folder: Path
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

    address = RpcAddress("127.0.0.1", programs.free_port())
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
    with programs.served() as server:
        device = RpcDevice(RpcAddress("127.0.0.1", server.port), 1, patience_s=2)
        built = programs.matmul(tmp_path)
        assert isinstance(device.measure(built, SETTINGS, None), Measurement)
        assert device.transfers.bytes > 0
        server.signal(signal.SIGSTOP)
        with pytest.raises(RetryElsewhereError, match="stopped answering"):
            device.measure(built, SETTINGS, None)


def test_a_tracker_lends_its_servers(tmp_path: Path) -> None:
    from tunefleet.devices.rpc import RpcDevice

    with programs.served(what="rpc_tracker") as tracker:
        address = RpcAddress("127.0.0.1", tracker.port, "board", tracker=True)
        spec = DeviceSpec(rpc=address)
        assert "no server of the key board" in health_of(spec).detail
        place = f"127.0.0.1:{tracker.port}"
        with programs.served("--tracker", place, "--key", "board"):
            programs.until(lambda: health_of(spec).state is DeviceState.FREE, 20)
            device = RpcDevice(address, 1)
            outcome = device.measure(programs.matmul(tmp_path), SETTINGS, None)
            assert isinstance(outcome, Measurement)
            assert health_of(spec).state is DeviceState.BUSY
            device.close()
            programs.until(lambda: health_of(spec).state is DeviceState.FREE, 20)
