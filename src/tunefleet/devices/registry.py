"""The devices that the user has named: one small file below the home folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tunefleet.core.device import LOCAL, RegisteredDevice, is_device_name
from tunefleet.core.gpu import CUDA
from tunefleet.errors import InputError
from tunefleet.hardware.gpu import gpu_device, gpu_devices
from tunefleet.system.files import check_regular

SCHEMA = "tunefleet.devices/1"
_MOST_BYTES = 1 << 24


class DeviceRegistry:
    """Reads the file anew for each question; changes it under a lock, by draft and rename.

    Processes may use one file at a time. Raises InputError for a file that is none of ours.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[RegisteredDevice]:
        """In the order of their names."""
        check_regular(self._path, _MOST_BYTES)
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            value = json.loads(content)
            if value["schema"] != SCHEMA:
                raise InputError(
                    f"{self._path} is of the schema {value['schema']}, this version reads {SCHEMA}",
                    cure="use the tunefleet that wrote it",
                )
            devices = [RegisteredDevice.from_json(each) for each in value["devices"]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{self._path} is damaged: {error}", cure="remove it and add the devices again"
            ) from error
        return sorted(devices, key=lambda device: device.name)

    def chosen(self, names: Sequence[str], kind: str = "") -> tuple[RegisteredDevice, ...]:
        """The devices of these names, and all of a kind: `cpu`, `cuda`, or the name of their
        hardware. GPUs of this machine are named `cuda:0`, or by their UUID.

        Raises InputError for a name that nobody gave and a kind that none is of.
        """
        devices = {device.name: device for device in self.all()}
        if kind:
            devices |= {device.name: device for device in gpu_devices()}
        names = [_of_gpu(name, devices) if name.startswith(CUDA) else name for name in names]
        for name in names:
            if name not in devices:
                raise _unknown(name, devices)
        of_kind = [d.name for d in devices.values() if kind and kind.lower() in _kinds(d)]
        if kind and not of_kind:
            there = sorted({k for d in devices.values() for k in _kinds(d)})
            raise InputError(
                f"no device is of kind '{kind}'; there are: {', '.join(there) or 'none'}",
                cure="tunefleet devices",
            )
        return tuple(devices[name] for name in dict.fromkeys([*names, *of_kind]))

    def add(self, device: RegisteredDevice) -> None:
        """Raises InputError for a name or an address that is there already."""
        with self._changing() as devices:
            for other in devices.values():
                if device.name == other.name or device.spec == other.spec:
                    raise InputError(
                        f"{other.spec.url} is a device already, called {other.name}",
                        cure=f"remove it first: tunefleet device remove {other.name}",
                    )
            devices[device.name] = device

    def remove(self, name: str) -> RegisteredDevice:
        """Raises InputError for a name that nobody gave."""
        with self._changing() as devices:
            if name not in devices:
                raise _unknown(name, devices)
            return devices.pop(name)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, RegisteredDevice]]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            devices = {device.name: device for device in self.all()}
            yield devices
            self._write(list(devices.values()))

    def _write(self, devices: list[RegisteredDevice]) -> None:
        value: dict[str, Any] = {"schema": SCHEMA, "devices": [d.to_json() for d in devices]}
        draft = self._path.with_suffix(f".{os.getpid()}.draft")
        try:
            draft.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
            os.replace(draft, self._path)
        finally:
            draft.unlink(missing_ok=True)


def _of_gpu(name: str, devices: dict[str, RegisteredDevice]) -> str:
    """The name of a device that a user may mean by `name`: a registered one, or a GPU of this
    machine, which is added to `devices`. Raises InputError."""
    if name in devices:
        return name
    found = gpu_device(name if ":" in name else f"{name}:0")
    devices[found.name] = found
    return found.name


def _kinds(device: RegisteredDevice) -> tuple[str, str]:
    return device.spec.kind.value, device.description.identity.name.lower()


def check_name(name: str) -> str:
    """A name that a device may have; raises InputError."""
    if not is_device_name(name):
        cause = "is this machine's own processor" if name == LOCAL else "is not a valid device name"
        raise InputError(
            f"'{name}' {cause}", cure="use letters, digits, dots and dashes: --name board-1"
        )
    return name


def _unknown(name: str, devices: dict[str, RegisteredDevice]) -> InputError:
    there = ", ".join(sorted(devices)) or "none"
    return InputError(f"no device is called '{name}'; there are: {there}", cure="tunefleet devices")
