import json
from pathlib import Path

import pytest

from tests.devices.servers import free_port
from tests.devices.test_registry import BOARD
from tunefleet.cli.app import run
from tunefleet.cli.devices import _default_name
from tunefleet.core.device import DeviceSpec, RpcAddress, is_device_name
from tunefleet.core.home import Home
from tunefleet.devices.registry import DeviceRegistry

pytestmark = pytest.mark.tvm


def test_devices_are_listed_with_their_health(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    gone = replace(BOARD, spec=DeviceSpec(rpc=RpcAddress("127.0.0.1", free_port())))
    DeviceRegistry(Home(tmp_path).devices).add(gone)
    assert run(["devices", "--home", str(tmp_path), "--json", "-"]) == 0
    local, board = json.loads(capsys.readouterr().out)
    assert (local["name"], local["health"]["state"]) == ("local", "free")
    assert (board["health"]["state"], board["health"]["detail"]) == (
        "unreachable",
        "connection refused",
    )
    assert board["identity"]["name"] == "Cortex-A72"


def test_a_device_is_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeviceRegistry(Home(tmp_path).devices).add(BOARD)
    assert run(["device", "remove", "board", "--home", str(tmp_path)]) == 0
    assert "its records are kept" in capsys.readouterr().out
    assert run(["device", "remove", "board", "--home", str(tmp_path)]) == 2


def test_what_is_no_address_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["device", "add", "board"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("host", ["::1", "fe80::1", "::", "board.lab"])
def test_any_address_has_a_name_by_default(host: str) -> None:
    assert is_device_name(_default_name(DeviceSpec(rpc=RpcAddress(host, 9090))))


def test_an_empty_name_is_not_taken_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["device", "add", "rpc://localhost:1", "--name", ""]) == 2
    assert "'' is not a valid device name" in capsys.readouterr().err
