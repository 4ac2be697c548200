import json
from dataclasses import replace
from pathlib import Path

import pytest

from tunefleet.core.device import DeviceDescription, DeviceSpec, RegisteredDevice, RpcAddress
from tunefleet.core.identity import DeviceIdentity
from tunefleet.devices.registry import DeviceRegistry, check_name
from tunefleet.errors import InputError

IDENTITY = DeviceIdentity("cpu", "Cortex-A72", ("asimd",), 4, (("L2", 1 << 20),), 8)
BOARD = RegisteredDevice(
    "board",
    DeviceSpec(rpc=RpcAddress("10.0.0.7", 9090)),
    DeviceDescription(IDENTITY, "aarch64", (0, 1, 2, 3)),
    1.5,
)


@pytest.fixture
def registry(tmp_path: Path) -> DeviceRegistry:
    return DeviceRegistry(tmp_path / "home" / "devices.json")


def test_what_was_added_is_there(registry: DeviceRegistry) -> None:
    assert registry.all() == []
    registry.add(BOARD)
    assert registry.all() == [BOARD]
    assert registry.chosen(["board"]) == (BOARD,)


def test_what_was_removed_is_gone(registry: DeviceRegistry) -> None:
    registry.add(BOARD)
    assert registry.remove("board") == BOARD
    assert registry.all() == []


def test_a_name_or_an_address_comes_once(registry: DeviceRegistry) -> None:
    registry.add(BOARD)
    other = DeviceSpec(rpc=RpcAddress("10.0.0.8", 9090))
    for again in (replace(BOARD, name="other"), replace(BOARD, spec=other)):
        with pytest.raises(InputError, match="is a device already, called board; remove it first"):
            registry.add(again)


def test_an_unknown_name_is_told_with_those_there_are(registry: DeviceRegistry) -> None:
    registry.add(BOARD)
    for ask in (registry.remove, lambda name: registry.chosen([name])):
        with pytest.raises(InputError, match="no device is called 'bord'; there are: board"):
            ask("bord")


def test_devices_are_chosen_by_name_and_by_kind(registry: DeviceRegistry) -> None:
    twin = replace(BOARD, name="twin", spec=DeviceSpec(rpc=RpcAddress("10.0.0.9", 9090)))
    for device in (BOARD, twin):
        registry.add(device)
    assert registry.chosen(["twin", "board", "twin"]) == (twin, BOARD)
    for kind in ("cpu", "cortex-a72", "Cortex-A72"):
        assert registry.chosen([], kind) == (BOARD, twin)
    assert registry.chosen(["twin"], "cpu") == (twin, BOARD)
    with pytest.raises(InputError, match="no device is of kind 'gpu'; there are: cortex-a72, cpu"):
        registry.chosen([], "gpu")


def test_devices_are_chosen_whatever_their_kind(registry: DeviceRegistry) -> None:
    identity = replace(IDENTITY, name="Cortex-A53")
    other = RegisteredDevice(
        "other",
        DeviceSpec(rpc=RpcAddress("10.0.0.9", 9090)),
        DeviceDescription(identity, "aarch64", (0,)),
        2.0,
    )
    for device in (BOARD, other):
        registry.add(device)
    assert registry.chosen(["board", "other"]) == (BOARD, other)
    assert registry.chosen([], "cortex-a53") == (other,)


@pytest.mark.parametrize(
    "text", ["", "\xff", "[]", "{}", '{"schema": "tunefleet.devices/1", "devices": [{"name": 3}]}']
)
def test_a_damaged_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "devices.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match="is damaged"):
        DeviceRegistry(path).all()


def test_a_file_of_another_schema_is_told(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    path.write_text(json.dumps({"schema": "tunefleet.devices/2", "devices": []}))
    with pytest.raises(InputError, match=r"this version reads tunefleet\.devices/1"):
        DeviceRegistry(path).all()


@pytest.mark.parametrize("name", ["local", "", "a b", "-x", "x" * 64])
def test_names_that_no_device_may_have(name: str) -> None:
    with pytest.raises(InputError, match="--name board-1"):
        check_name(name)


@pytest.mark.parametrize(
    "url", ["rpc://board:9090", "rpc://[::1]:9090", "rpc://b:1/key", "tracker://10.0.0.1:9190/pi"]
)
def test_an_address_is_its_url(url: str) -> None:
    assert RpcAddress.parse(url).url == url


@pytest.mark.parametrize(
    "url", ["board:9090", "rpc://board", "rpc://b:0", "rpc://b:70000", "tracker://b:9190", "rpc://"]
)
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(ValueError, match=r"rpc://HOST|not a valid port|needs a key"):
        RpcAddress.parse(url)
